# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a shared file system from every node: each uses it, and sees what the others do on it."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid

from ....module_utils._model import shared_filesystem as rules
from ....module_utils._model.binding import Binding, Reachability, Vantage
from ....module_utils._model.errors import MusterError
from ....module_utils._model.shared_filesystem import Filesystem, MountReport

Request = dict[str, object]
_OTHER_VOLUME: t.Final = "Each node has a volume of its own: name a StorageClass whose driver has ReadWriteMany"
# Sends requests to nodes and returns what they answer.
Send = t.Callable[[t.Mapping[str, Request]], object]


@dataclasses.dataclass(slots=True)
class FilesystemOrder:
    """A file system that is checked. ``writes``: false in check mode.

    ``marker`` is that of the binding that there is, then the one that the first check found.
    """

    binding: Binding
    writes: bool
    marker: str | None
    is_bound: bool = dataclasses.field(init=False)
    _made: list[tuple[Send, dict[str, Request]]] = dataclasses.field(default_factory=list)
    token: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex[:12])

    def __post_init__(self) -> None:
        self.is_bound = self.marker is not None

    @property
    def filesystem(self) -> Filesystem:
        """Where nodes have it; of an export or a share the type is known."""
        own = self.binding.filesystem or Filesystem()
        return own if own.type or not self.source else dataclasses.replace(own, type=self.binding.provider)

    @property
    def source(self) -> str:
        """The export or share that must be mounted, empty for a path."""
        return rules.source_of(str(self.binding.provider), self.binding.endpoint, self.binding.name)

    @property
    def path(self) -> str:
        """The folder at which nodes have it, or the pods of a check."""
        return rules.CLAIM_PATH if self.of_class else str(self.filesystem.path)

    @property
    def of_class(self) -> bool:
        """Whether it is a StorageClass: pods alone have its volumes, each of a claim."""
        return self.binding.provider == "storage_class"

    def build_request(self, node: str, nodes: t.Sequence[str], wait_s: float) -> Request:
        """Return what a node is to do; it reads what the node after it writes."""
        types = rules.list_types(self.filesystem.type)
        request: Request = {"path": self.path, "types": types, "any_disk": bool(types), "limit_s": rules.LIMIT_S}
        if self.writes and "write" in self.binding.access_modes:
            writer = dict(_pair(nodes))[node]
            # The volume of a claim is in pods or they do not start: nothing has to say that it is the one.
            unmarked = {"unmarked": True} if self.of_class else {}
            request["probe"] = {"token": self.token, "node": node, "writer": writer, "wait_s": wait_s, **unmarked}
        return request

    def judge(
        self,
        vantage: Vantage,
        places: t.Mapping[str, str],
        answers: t.Mapping[str, t.Mapping[str, t.Any]],
        errors: t.Mapping[str, MusterError],
        send: Send,
    ) -> tuple[list[Reachability], list[str]]:
        """Return a row for each node and notes for people, and have nodes delete what a failed check left.

        :param places: by name of a request the name of the node that had it.
        """
        looks = {node: MountReport.from_dict(answer) for node, answer in answers.items()}
        about = (self.source, str(self.binding.provider))
        seen = {node: rules.judge(self.filesystem, look, *about) for node, look in looks.items()}
        marker = rules.choose_marker(self.marker, {node: look for node, look in looks.items() if not seen[node]})
        for node in looks:
            seen[node] = seen[node] or rules.judge_marker(self.path, marker, node, looks, self.is_bound)
        for reader, writer in _pair(list(places)):
            both = [node in looks and not seen[node] for node in (reader, writer)]
            if all(both) and looks[reader].unread and looks[writer].wrote:
                fix = _OTHER_VOLUME if self.of_class else "Check the caches of the mount (NFS: acregmax, lookupcache)"
                seen[reader] = f"{self.path} does not show what {places[writer]} has written there", fix
        rows = [
            self._build_row(vantage, place, looks.get(node), seen.get(node), errors.get(node))
            for node, place in places.items()
        ]
        if self.writes:
            self._clean_up(looks, seen, marker, send)
        self.marker = marker
        return rows, _describe_owners(looks, places)

    def complete(self) -> Binding:
        """Return the binding with the marker by which a node is known to have this file system."""
        marked = dataclasses.replace(self.binding.filesystem or Filesystem(), marker=self.marker)
        return dataclasses.replace(self.binding, filesystem=marked)

    def undo(self) -> None:
        """Remove the marker that the check has left, of a file system that is not bound in the end."""
        for send, requests in self._made:
            send(requests)

    def _build_row(
        self,
        vantage: Vantage,
        node: str,
        look: MountReport | None,
        problem: rules.Problem | None,
        error: MusterError | None,
    ) -> Reachability:
        if error is not None or look is None:
            text, fix = (error.message, error.fix) if error is not None else ("no answer", "")
            return Reachability(node, vantage, False, problem=text, fix=fix or None)
        if problem is not None:
            return Reachability(node, vantage, False, problem=problem[0], fix=problem[1])
        return Reachability(node, vantage, True, look.latency_ms, look.mb_per_s)

    def _clean_up(
        self,
        looks: t.Mapping[str, MountReport],
        seen: t.Mapping[str, rules.Problem | None],
        marker: str | None,
        send: Send,
    ) -> None:
        """Delete what a failed check left: its files, and markers on file systems that are not bound."""
        has_files = {node for node, look in looks.items() if look.marker or (self.of_class and not look.is_own_disk)}
        failed = [node for node in looks if seen[node] and node in has_files]
        usable = [node for node, look in looks.items() if not seen[node]]
        wrong = {node: looks[node].marker for node in failed if looks[node].made and looks[node].marker != marker}
        requests = {node: self._clean_request(wrong.get(node)) for node in [*failed, *(usable[:1] if failed else ())]}
        if requests:
            send(requests)
        self._made += [
            (send, {node: self._clean_request(marker)})
            for node, look in looks.items()
            if look.made and node not in wrong
        ]

    def _clean_request(self, marker: str | None) -> Request:
        about = {"path": self.path, "token": self.token, "marker": marker, "limit_s": rules.LIMIT_S}
        return {"op": "s3", "step": "clean_mount", **about}


def _describe_owners(looks: t.Mapping[str, MountReport], places: t.Mapping[str, str]) -> list[str]:
    """Return on which nodes files belong to another user than the one who writes them."""
    squashed = {(look.user, look.owner) for look in looks.values() if look.owner not in (None, look.user)}
    notes = []
    for user, owner in sorted(squashed, key=str):
        nodes = [places[node] for node, look in looks.items() if (look.user, look.owner) == (user, owner)]
        notes.append(
            f"files that uid {user} writes on {', '.join(nodes[:5])} belong to uid {owner} (root_squash, or uid= of "
            "the mount): programs cannot change their owner"
        )
    return notes


def _pair(nodes: t.Sequence[str]) -> list[tuple[str, str]]:
    """Return each node with the one whose files it reads."""
    return list(zip(nodes, (*nodes[1:], *nodes[:1]), strict=True))
