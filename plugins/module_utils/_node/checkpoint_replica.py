# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps on each node what the node before it alone saved, while ranks run: a lost machine takes no model along.

Each node asks one other, so a gang of any size costs one request a node. A file that shows its end is copied at once,
any other one when it looks the same a second later. Programs that keep a part per node are left alone, as before a
restart (``checkpoint_copies.py``).
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import fcntl
import pathlib
import threading
import typing as t

from . import checkpoint_copies, checkpoint_peers

# Of no gang: the other node says what it has now, not what it had when its ranks began.
_NOW = "now"
# A file without an end of its own may still be written; one that is replaced more often than this is never seen whole.
_SETTLED_S: t.Final = 1.0
# So many looks in a row without an answer, or without a file that stands, are said.
_PATIENCE: t.Final = 3


class ReplicaThread:
    """Copies in the background of a supervisor, every ``copy_every_s`` seconds of the node's specification."""

    def __init__(self, run: pathlib.Path) -> None:
        self._run = run
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: set[str] = set()
        # Looks in a row that brought nothing, though there was something to have.
        self._vain = 0
        # Looks in a row at files that have the numbers of ranks, and of which this node has none.
        self._ranked = 0
        self._has_answered = False

    def start(self) -> None:
        """Begin, unless this has begun before or the specification does not ask for it."""
        spec = checkpoint_peers.read_spec(self._run)
        if self._thread is None and spec and spec.get("copy_every_s") and len(spec["nodes"]) > 1:
            every = float(spec["copy_every_s"])
            self._thread = threading.Thread(target=self._work, args=(every,), name="replica", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End; a copy that is on its way is given up and leaves nothing."""
        self._ended.set()

    def _work(self, every: float) -> None:
        while not self._ended.wait(every):
            try:
                self.step(min(_SETTLED_S, every))
            except checkpoint_peers.UnreachablePeerError as exc:
                self._note_silence(str(exc))
            except (checkpoint_peers.PeerError, OSError, ValueError, KeyError, TypeError) as exc:
                self._note(str(exc))

    def _note_silence(self, problem: str) -> None:
        """Say that the other node was never reached. One that answered once may have ended, which its run says."""
        self._vain += 1
        if not self._has_answered and self._vain == _PATIENCE:
            self._note(problem)

    def _note(self, problem: str) -> None:
        """Say each problem once."""
        spec = checkpoint_peers.read_spec(self._run)
        if spec and problem not in self._said and not self._ended.is_set():
            self._said.add(problem)
            copies = checkpoint_peers.NodeCopies(self._run, spec)
            copies.note("checkpoint_not_replicated", detail=problem, source=_find_source(spec))

    def step(self, settled_s: float = _SETTLED_S) -> bool:
        """Copy what the node before this one has alone; return whether anything was copied.

        :param settled_s: after how long a file without an end of its own must look the same.
        :raises PeerError: when that node does not answer, or there is no room.
        """
        spec = checkpoint_peers.read_spec(self._run)
        if spec is None:
            return False
        copies, source = checkpoint_peers.NodeCopies(self._run, spec), _find_source(spec)
        with open(self._run / "gate.lock", "w", encoding="utf-8") as lock:
            try:
                # Ranks that begin here copy all that they need.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            there = self._list_settled(copies, source, settled_s)
            own = copies.list_own()
            plan = checkpoint_copies.plan_copies({source: there, spec["node"]: own})
            self._note_ranked(there, is_alone=plan.in_parts and not any(entry.is_written_here for entry in own))
            wanted = plan.copies.get(spec["node"], [])
            if wanted:
                copies.copy(wanted, "checkpoint_replicated")
            copies.remove(plan.stale.get(spec["node"], []))
        return bool(wanted)

    def _note_ranked(self, there: t.Sequence[checkpoint_copies.Entry], *, is_alone: bool) -> None:
        """Say that nothing is copied where one node alone saves what looks like the parts of several."""
        self._ranked = self._ranked + 1 if is_alone else 0
        if self._ranked == _PATIENCE:
            names = ", ".join(sorted(entry.name for entry in there)[:3])
            self._note(f"names in {names} have the number of a rank, as the parts do that each node keeps")

    def _list_settled(
        self, copies: checkpoint_peers.NodeCopies, source: str, settled_s: float
    ) -> list[checkpoint_copies.Entry]:
        """Return what the other node wrote itself and has written to its end."""
        listed = [entry for entry in copies.list_of(source, _NOW) if entry.is_written_here]
        self._has_answered = True
        there = [entry for entry in listed if entry.proven]
        if len(there) < len(listed) and not self._ended.wait(settled_s):
            again = copies.list_of(source, _NOW)
            there += [entry for entry in listed if not entry.proven and entry in again]
        self._vain = self._vain + 1 if listed and not there else 0
        if self._vain == _PATIENCE:
            names = ", ".join(sorted(entry.name for entry in listed)[:3])
            self._note(f"{names} of {source} changes more often than every {settled_s:g} s")
        return there


def _find_source(spec: t.Mapping[str, t.Any]) -> str:
    """Return the node before this one, of whose checkpoints it keeps a copy."""
    names = list(spec["nodes"])
    return str(names[names.index(spec["node"]) - 1])


def describe(line: t.Mapping[str, t.Any]) -> str:
    """Return an event of a replica as a sentence, empty for any other event."""
    node, detail = line.get("node"), line.get("detail")
    if line.get("kind") == "checkpoint_replicated":
        size = f"{line['bytes'] / 1e6:.1f} MB in {line['seconds']:.1f} s"
        saved = f"what {line['source']} saved, of {detail} first ({size})"
        return f"{node} has a copy of {saved}, and of the newer ones later"
    if line.get("kind") == "checkpoint_not_replicated":
        source = line.get("source")
        return f"warning: {node} cannot copy what {source} alone saves, and would be lost with {source}: {detail}"
    return ""
