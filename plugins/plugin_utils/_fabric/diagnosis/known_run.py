# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the record and the events of a run already know, beside what its nodes or pods still show. Pure rules.

A pod that was deleted or replaced takes its log with it: that is not known any more, while its follower has read it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.run_attempt import Attempt
from ....module_utils._model.run_history import fold, parse_time, read_count

Line = t.Mapping[str, t.Any]
_FAILED: t.Final = ("failed", "lost")


@dataclasses.dataclass(frozen=True, slots=True)
class KnownRun:
    """``over``: whether the run has ended, None where that is not known now. ``attempt``: the newest one of its events.

    ``steps``: (time, step), as the controller has read them. ``outcome``, ``cause``, ``detail``: how it ended.
    ``nodes``: the names of its nodes. ``gpus``: whether its ranks have GPUs. ``at``: when this was read.
    ``left``: the half-saved checkpoint that is the only one it has, or one that no report of it is of.
    """

    over: bool | None
    at: float = 0.0
    attempt: Attempt | None = None
    steps: tuple[tuple[float, int], ...] = ()
    outcome: str | None = None
    cause: str = ""
    detail: str = ""
    nodes: tuple[str, ...] = ()
    gpus: bool = False
    left: str = ""

    @classmethod
    def build(cls, record: Line, events: t.Iterable[Line], metrics: t.Iterable[Line], at: float) -> KnownRun:
        """Return what a record and the lines of its run's events and metrics say."""
        metrics = list(metrics)
        story = fold(events, metrics)
        lines = metrics if story.are_steps_known else []
        return cls(
            True if record["state"] == "ended" else None,
            at,
            story.attempts[-1] if story.attempts else None,
            tuple(
                (when, step)
                for line in lines
                if (when := parse_time(line.get("at"))) is not None and (step := read_count(line, "step")) is not None
            ),
            record.get("outcome"),
            str(record.get("cause") or ""),
            str(record.get("detail") or ""),
            tuple(map(str, record.get("hosts") or ())),
            bool((record.get("job") or {}).get("gpus_per_node")),
            story.left.describe_left(story.checkpoint, story.checkpoint_at),
        )

    @property
    def has_failed(self) -> bool:
        """Return whether it ended, and not well."""
        return bool(self.over) and self.outcome in _FAILED

    @property
    def lost_node(self) -> tuple[str, str] | None:
        """Return the node that its newest attempt lost, and how that is known; None where it lost none."""
        attempt = self.attempt
        if attempt is None or attempt.cause != "node_lost" or not attempt.failed_node:
            return None
        step = "" if attempt.last_step is None else f"; the gang had reached step {attempt.last_step}"
        said = "the cluster says that it is not ready" if attempt.not_ready else "its ranks were lost with it"
        return attempt.failed_node, f"attempt {attempt.n} lost this node: {said}{step}"

    @property
    def losing_node(self) -> tuple[str, str] | None:
        """Return the node that the cluster called not ready while the newest attempt ran, and how that is known."""
        attempt = self.attempt
        if self.lost_node or attempt is None or attempt.not_ready is None or not attempt.not_ready[1]:
            return self.lost_node
        return attempt.not_ready[1], f"the cluster says that it is not ready, since attempt {attempt.n} began"

    def describe_end(self) -> str:
        """Return how the run ended, as its record says; empty of one that has succeeded or has not ended."""
        if not self.over or self.outcome in (None, "succeeded"):
            return ""
        why = ": ".join(filter(None, [self.cause if self.cause != self.outcome else "", self.detail]))
        return f"{self.outcome}: {why}" if why else str(self.outcome)
