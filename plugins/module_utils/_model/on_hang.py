# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows a hang (``restart.on_hang``): a pure rule over who is waited for, and for how long."""

from __future__ import annotations

import typing as t

from .errors import InputError
from .hang import Hang

if t.TYPE_CHECKING:
    from .job import Job, Restart

# So long may a rank that was killed take to be seen as ended: one that waits for a dead file system never ends.
ENDS_WITHIN_S = 60.0


class HangDecision(t.NamedTuple):
    """What to do now: nothing, kill ``rank``, whose end starts the gang again, or end the run because of ``detail``."""

    action: t.Literal["none", "kill", "end"]
    rank: int | None = None
    node: str | None = None
    detail: str = ""


def check_on_hang(job: Job) -> None:
    """Refuse a restart where nothing starts the program again.

    :raises InputError: naming the option.
    """
    if job.restart.on_hang == "restart" and job.launcher == "command" and not job.on_kubernetes:
        raise InputError(
            "job.restart.on_hang", "restart has no effect: the launcher 'command' starts it once", "Use stop or report"
        )


def decide(
    restart: Restart, found: Hang | None, running: t.Mapping[int, str], now: float, used: int, killed_at: float | None
) -> HangDecision:
    """Return what follows a hang.

    Where ranks may only pause, none is known to be waited for, and nothing follows.

    :param running: rank -> node of the ranks that run. :param now: Unix seconds. :param used: how many restarts of
        ``max_crashes`` are used up. :param killed_at: when a rank of this attempt was killed for it, None if none was.
    """
    if found is None or not found.is_certain or restart.on_hang == "report" or now - found.since < restart.hang_s:
        return HangDecision("none")
    first = found.culprits[0] if found.culprits else None
    # Ranks that wait in different operations: the end of any of them ends all.
    rank = first.rank if first is not None else min(running, default=None)
    node = first.node if first is not None else running.get(rank) if rank is not None else None
    said = found.describe(now)
    if restart.on_hang == "stop":
        return HangDecision("end", rank, node, f"{said} (job.restart.on_hang: stop)")
    if killed_at is not None:
        if now - killed_at < ENDS_WITHIN_S:
            return HangDecision("none")
        return HangDecision("end", rank, node, f"{said}; it was killed and did not end within {ENDS_WITHIN_S:.0f} s")
    if used >= restart.max_crashes:
        return HangDecision("end", rank, node, f"{said}; restart.max_crashes ({restart.max_crashes}) is used up")
    return HangDecision("kill", rank, node, said) if rank is not None else HangDecision("none")
