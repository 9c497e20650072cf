# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run ends because a disk of this node stays full, judged by what the node alone knows of it.

A launcher restarts ranks by itself, whether the run is followed or not. A node that has neither rank 0 nor steps of its
own ranks cannot tell whether the gang comes further, and judges nothing: there only a controller that follows ends it.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import math
import os
import pathlib
import time
import typing as t

from . import full_disk
from .pod_log import Tail

# What ranks saved is found a few seconds after they did (``checkpoint_found.py``).
_SETTLED_S = 6.0
_LAST_BYTES = 64 << 10
# How a rank ends that its launcher stops because of another one: 128 + SIGTERM.
_STOPPED = 143


class _Failure(t.NamedTuple):
    exit_code: int


class _Attempt:
    """An attempt as this node saw it (``full_disk.Ended``). ``log_at``: how long the unit's log was at its start."""

    def __init__(self, n: int, started_at: float, log_at: int) -> None:
        self.n, self.started_at, self.log_at = n, started_at, log_at
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.saved_steps: tuple[int, int] | None = None
        self.first_failure: _Failure | None = None
        self.failed_at = 0.0

    @property
    def cause(self) -> str | None:
        return "crash" if self.first_failure else None


class FullDiskWatch:
    """Takes in what a unit writes beside its launcher.

    :param since: how long the unit's events were before its launcher was first started.
    """

    def __init__(self, run: pathlib.Path, log: pathlib.Path, node: str, since: int) -> None:
        self._run, self._log, self._node = run, log, node
        self._events, self._metrics = Tail(run / "events.jsonl", since=since), Tail(run / "metrics.jsonl", new=True)
        self._disks, self._attempts = full_disk.FullDisks(), list[_Attempt]()
        self._sees_steps = False
        # Whether steps came of which this node cannot tell the attempt.
        self._is_unclear = False

    def find_end(self) -> full_disk.FullEnd | None:
        """Return the end of the run by its disk, None where it may continue."""
        for line in self._events.lines():
            self._disks.event(line)
            self._take_event(line)
        for line in self._metrics.lines():
            self._take_metric(line)
        settled = time.time() - _SETTLED_S
        known = [item for item in self._attempts if item.first_failure is None or item.failed_at < settled]
        return self._disks.find_end(known) if self._sees_steps and not self._is_unclear else None

    def _take_event(self, line: t.Mapping[str, t.Any]) -> None:
        kind, rank, at = line.get("kind"), line.get("rank"), _number(line.get("at"))
        if kind not in ("worker_started", "worker_exit") or not isinstance(rank, int) or at is None:
            return
        number = int(line.get("attempt") or 1)
        self._sees_steps = self._sees_steps or rank == 0
        if not self._attempts or number > self._attempts[-1].n:
            self._attempts.append(_Attempt(number, at, _size(self._log)))
        attempt = next((item for item in self._attempts if item.n == number), None)
        code = int(line.get("exit_code") or 0)
        if attempt is None or kind == "worker_started" or line.get("stopped") or code in (0, _STOPPED):
            return
        attempt.first_failure = attempt.first_failure or _Failure(code)
        attempt.failed_at = at
        for text in self._read_output(attempt, rank):
            self._disks.take_text(self._node, text, [attempt])

    def _take_metric(self, line: t.Mapping[str, t.Any]) -> None:
        at, step, saved = (_number(line.get(key)) for key in ("at", "step", "checkpoint_step"))
        attempt = next((item for item in reversed(self._attempts) if at is not None and item.started_at <= at), None)
        if step is None and saved is None:
            return
        self._sees_steps, self._is_unclear = True, self._is_unclear or attempt is None
        if attempt is None:
            return
        if step is not None:
            attempt.first_step = int(step) if attempt.first_step is None else attempt.first_step
            attempt.last_step = max(int(step), attempt.last_step or 0)
        if saved is not None:
            known = attempt.saved_steps or (int(saved), int(saved))
            attempt.saved_steps = min(known[0], int(saved)), max(known[1], int(saved))

    def _read_output(self, attempt: _Attempt, rank: int) -> list[str]:
        """Return what a rank of an attempt printed last: into a file of its own under torchrun, else into the log."""
        places = list(self._run.glob(f"ranks/attempt_*.{attempt.n}/{rank}/std*.log"))
        return [_read_last(place) for place in places] or [_read_last(self._log, attempt.log_at)]


def _number(value: object) -> float | None:
    """Return a finite number of a line, None for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(t.cast(float, value)) if is_number else None


def _size(place: pathlib.Path) -> int:
    try:
        return place.stat().st_size
    except OSError:
        return 0


def _read_last(place: pathlib.Path, since: int = 0) -> str:
    """Return the end of a file, without what was in it before ``since``."""
    try:
        with open(place, "rb") as handle:
            end = handle.seek(0, os.SEEK_END)
            handle.seek(max(since, end - _LAST_BYTES))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""
