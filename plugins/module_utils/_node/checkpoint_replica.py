# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps on each node what the node before it alone saved, while ranks run: a lost machine takes no model along.

Each node asks one other, so a gang of any size costs one request a node. The other one's own files are copied once
they look the same twice in a row. Programs that keep a part per node are left alone, as before a restart
(``checkpoint_copies.py``).

This is a private utility of the collection; it may change without notice.
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
_Listed = dict[str, checkpoint_copies.Entry]


class ReplicaThread:
    """Copies in the background of a supervisor, every ``copy_every_s`` seconds of the node's specification."""

    def __init__(self, run: pathlib.Path) -> None:
        self._run = run
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: _Listed = {}
        self._problem = ""

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
                self.step()
                self._problem = ""
            except (checkpoint_peers.PeerError, OSError, ValueError, KeyError, TypeError) as exc:
                self._note(str(exc))

    def _note(self, problem: str) -> None:
        """Say a problem once: the other node may be gone for long, which its own follower says."""
        spec = checkpoint_peers.read_spec(self._run)
        if spec and problem != self._problem and not self._ended.is_set():
            self._problem = problem
            checkpoint_peers.NodeCopies(self._run, spec).note("checkpoint_not_replicated", detail=problem)

    def step(self) -> bool:
        """Copy what the node before this one has alone; return whether anything was copied.

        :raises PeerError: when that node does not answer, or there is no room.
        """
        spec = checkpoint_peers.read_spec(self._run)
        if spec is None:
            return False
        copies = checkpoint_peers.NodeCopies(self._run, spec)
        names = list(spec["nodes"])
        before = names[names.index(spec["node"]) - 1]
        with open(self._run / "gate.lock", "w", encoding="utf-8") as lock:
            try:
                # Ranks that begin here copy all that they need.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            listed = {entry.name: entry for entry in copies.list_of(before, _NOW) if entry.is_written_here}
            still = [entry for name, entry in listed.items() if self._before.get(name) == entry]
            self._before = listed
            plan = checkpoint_copies.plan_copies({before: still, spec["node"]: copies.list_own()})
            wanted = plan.copies.get(spec["node"], [])
            if wanted:
                copies.copy(wanted, "checkpoint_replicated")
            copies.remove(plan.stale.get(spec["node"], []))
        return bool(wanted)


def describe(line: t.Mapping[str, t.Any]) -> str:
    """Return an event of a replica as a sentence, empty for any other event."""
    node, detail = line.get("node"), line.get("detail")
    if line.get("kind") == "checkpoint_replicated":
        size = f"{line['bytes'] / 1e6:.1f} MB in {line['seconds']:.1f} s"
        return f"{node} has a copy of {line['source']}'s checkpoint {detail} ({size}), and will have the newer ones"
    if line.get("kind") == "checkpoint_not_replicated":
        return f"warning: {node} has no copy of the checkpoints of another node, which would be lost with it: {detail}"
    return ""
