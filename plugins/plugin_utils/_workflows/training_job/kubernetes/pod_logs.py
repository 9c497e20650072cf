# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of a run print, line by line: what their ranks recorded, and the program's own words.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import math
import time
import typing as t

from .....module_utils._model.errors import MusterError
from .....module_utils._node.pod_log import MARK
from .....module_utils._secrets.scrubber import scrub
from ...._kube.api.kinds import KubeObject
from ...._kube.api.logs import LogPosition
from ...shared.progress import Progress
from .watches import ClusterWatches

# In this order: a metric belongs to the newest attempt, which events tell.
_STREAMS = ("events", "metrics", "usage", "log")
# So long after a log could not be read it is opened again; the last one is for all that follow.
_RETRY_S = (5.0, 15.0, 60.0)
# Kubernetes keeps at most so much of the end of a log: MaxContainerTerminationMessageLogLength of its kubelet.
_MESSAGE_BYTES = 2048


class PodLogs:
    """Takes lines, and writes those of one turn together: ``write(node, stream, text)``.

    ``nodes`` are the names of the pods' nodes by uid, ``read`` the places of the lines that were written last,
    ``refused(node, line)`` is called for a pod that did not start its program, and ``kept(node)`` returns the end of
    what was written of a node's log.
    """

    def __init__(
        self,
        nodes: t.Mapping[str, str],
        read: dict[str, LogPosition],
        write: t.Callable[[str, str, str], None],
        refused: t.Callable[[str, dict[str, t.Any]], None],
        kept: t.Callable[[str], str],
        progress: Progress,
    ) -> None:
        self.nodes, self.read = nodes, read
        self._write, self._refused, self._kept, self._progress = write, refused, kept, progress
        # The end of what ended containers printed, by uid of the pod, as the pod's status keeps it.
        self._last_words: dict[str, str] = {}
        # Pods whose logs have ended, and those whose termination message was compared with the kept log.
        self._over: set[str] = set()
        self._compared: set[str] = set()
        # Logs that could not be read: how often, and when they are opened again.
        self._away: dict[str, tuple[int, float]] = {}
        self._taken: dict[str, LogPosition] = {}
        # Lines by stream and node; only logs are kept apart by node.
        self._waiting: dict[tuple[str, str], list[str]] = {}

    def take(self, uid: str, place: LogPosition, raw: bytes) -> None:
        """Take in one line of the pod ``uid``."""
        self._taken[uid] = place
        self._away.pop(uid, None)
        text = raw.decode(errors="replace")
        node = self.nodes.get(uid, uid)
        if not text.startswith(MARK):
            self._waiting.setdefault(("log", node), []).append(text)
            return
        found = _parse_marked(text[len(MARK) :])
        if found is None:
            return
        stream, data, line = found
        if data.get("kind") == "pod_refused":
            self._refused(node, data)
        self._waiting.setdefault((stream, ""), []).append(line)

    def flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting = self._waiting, {}
        taken, self._taken = self._taken, {}
        for (stream, node), lines in sorted(waiting.items(), key=lambda item: _STREAMS.index(item[0][0])):
            self._write(node, stream, "\n".join([*lines, ""]))
        self.read.update(taken)

    def container_ended(self, uid: str, message: str) -> None:
        """Note that a pod's container ended, with the message of its end."""
        self._last_words[uid] = message
        if uid in self._over:
            self.write_termination_message(uid)

    def take_end(self, uid: str) -> None:
        """Note that nothing more of a pod's log will come."""
        self._over.add(uid)
        self.write_termination_message(uid)

    def take_failure(self, uid: str, problem: MusterError) -> None:
        """Note a log that cannot be read. That ends no run: it is opened again later."""
        tries = self._away[uid][0] if uid in self._away else 0
        if not tries:
            self._progress.say(f"a pod log cannot be read: {problem.message}")
        self._away[uid] = tries + 1, time.monotonic() + _RETRY_S[min(tries, len(_RETRY_S) - 1)]
        self.take_end(uid)

    def reopen(self, sources: ClusterWatches, pods: t.Mapping[str, KubeObject]) -> None:
        """Open logs again that could not be read, for as long as their pods are there."""
        now = time.monotonic()
        for uid, (tries, due) in list(self._away.items()):
            if now < due or uid not in pods:
                continue
            self._away[uid] = tries, math.inf
            self._over.discard(uid)
            sources.follow_log(pods[uid], self.read.get(uid))
            if uid in self._last_words:
                sources.container_ended(uid)

    def write_termination_message(self, *uids: str) -> None:
        """Write down what of the last lines of ended containers (all, or these) the kept logs do not hold."""
        # Once each: other pods of the node may print so much that the end of its log holds no lines of this one.
        for uid in sorted((set(uids) or set(self._last_words)) & set(self._last_words) - self._compared):
            self._compared.add(uid)
            node = self.nodes.get(uid, uid)
            kept = set(self._kept(node).split("\n"))
            lines = [line for line in _message_lines(self._last_words[uid]) if scrub(line) not in kept]
            if lines:
                self._write(node, "log", "\n".join(["the log's last lines, from the pod's status:", *lines, ""]))


def _parse_marked(text: str) -> tuple[str, dict[str, t.Any], str] | None:
    """Return (stream, data, data as a line of its file) of a marked line, None for one that no recorder wrote."""
    try:
        line = json.loads(text)
        stream, data = line["stream"], line["data"]
        if stream not in ("events", "metrics", "usage") or not isinstance(data, dict):
            return None
        return stream, data, json.dumps(data, separators=(",", ":"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _message_lines(message: str) -> list[str]:
    """Return the program's lines of a container's message, which Kubernetes takes from the end of its log."""
    # Not by splitlines(), for which the mark itself ends a line.
    lines = [line for line in message.split("\n") if line]
    if len(lines) > 1 and len(message.encode()) >= _MESSAGE_BYTES:
        # The first one lacks its beginning.
        lines = lines[1:]
    return [line for line in lines if not line.startswith(MARK)]
