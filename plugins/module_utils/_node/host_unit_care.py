# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a supervisor does beside its launcher.

It cares for checkpoints, also for other nodes, and records usage, what carries the ranks' traffic, and who stands.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import pathlib
import time
import typing as t

from . import checkpoint_care, checkpoint_peers, checkpoint_replica, files, rank_transport, rank_watch, usage


class UnitCare:
    """Cares for one unit as its specification asks (see ``host_units.py`` for its fields).

    :param since: how long the unit's events were before its launcher was started.
    """

    def __init__(self, spec: t.Mapping[str, t.Any], since: int) -> None:
        run, self._node = pathlib.Path(spec["events"]).parent, str(spec["node"])
        self._usage = pathlib.Path(spec["usage"]) if spec.get("usage") else None
        self._sampler = usage.Sampler()
        self._transport = rank_transport.TransportRecorder(run, self._node, since)
        self._watch = rank_watch.RankWatch(run, self._node, since)
        self._checkpoints = checkpoint_care.CheckpointCare(spec.get("checkpoints") or {}, run, self._node)
        self._events, self._peers = run / "events.jsonl", checkpoint_peers.PeerServer(run)
        self._replica = checkpoint_replica.ReplicaThread(run)

    def begin(self) -> None:
        """Begin to care for checkpoints, unless that has begun before."""
        try:
            self._peers.start()
        except OSError as exc:
            problem = f"this node cannot serve its checkpoints to others: {exc.strerror or exc}"
            line = {"at": time.time(), "kind": "checkpoints_not_compared", "node": self._node, "detail": problem}
            files.append_json(self._events, line)
        self._replica.start()
        self._checkpoints.start()

    def record(self) -> None:
        """Record usage, transport and ranks that stand, as far as it is time for that."""
        if self._usage:
            self._sampler.write(self._usage, self._node)
            self._transport.update()
            self._watch.update()

    def record_last(self) -> None:
        """Record the transport at once: the ranks have ended."""
        if self._usage:
            self._transport.update(last=True)

    def close(self, within_s: float | None, beat: t.Callable[[], None]) -> None:
        """Serve the nodes that have not asked yet, and store the last checkpoint (see ``CheckpointCare.close``)."""
        self._replica.close()
        if within_s is None:
            self._peers.linger(beat)
        self._checkpoints.close(within_s, beat)
