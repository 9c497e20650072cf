# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run was followed, and what of it was therefore not read: what was not read is not known, and not nothing."""

from __future__ import annotations

import itertools
import typing as t

if t.TYPE_CHECKING:
    from .run_attempt import Attempt


class Following:
    """What the events say of who followed the run. Times are Unix seconds.

    :ivar taken_over: when another controller took it over, and which. :ivar recovered: attempts whose log was read when
        their pods were gone; steps that the program prints are not read of it. :ivar followed: when a controller began
        to follow it again.
    """

    def __init__(self) -> None:
        self.taken_over: tuple[float, str] | None = None
        self.recovered: set[int] = set()
        self.followed: list[float] = []

    def take(self, line: t.Mapping[str, object], at: float) -> None:
        """Take in an event; others than those of followers change nothing."""
        if line.get("kind") == "followed":
            self.followed.append(at)
        elif line.get("kind") == "taken_over":
            self.taken_over = at, str(line.get("detail"))
        elif line.get("kind") == "log_recovered" and isinstance(attempt := line.get("attempt"), int):
            self.recovered.add(attempt)

    def unread_attempts(self, attempts: t.Sequence[Attempt]) -> list[int]:
        """Return the attempts that ended, and that another one came after, while the run was not followed."""
        return [
            attempt.n
            for attempt, later in itertools.pairwise(attempts)
            if not (attempt.cause or attempt.exits)
            and any(attempt.started_at < later.started_at <= at for at in self.followed)
        ]

    def has_steps_of(self, attempts: t.Sequence[Attempt]) -> bool:
        """Return whether the last step of each attempt that was followed by another one was read, where it made any."""
        printed = any(item.n in self.recovered and item.last_step is None for item in attempts)
        return not printed and not self.unread_attempts(attempts)

    def describe_unread(self, attempts: t.Sequence[Attempt]) -> str:
        """Return that a part of the run was not read, in words; empty where all of it was."""
        if self.taken_over is None or not attempts or attempts[-1].started_at < self.taken_over[0]:
            return ""
        return f"{self.taken_over[1]} followed it in between: what it trained then is not known here"
