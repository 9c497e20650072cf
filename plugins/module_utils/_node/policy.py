# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a supervisor does when its process ends: a pure rule.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

Kind = t.Literal["torchrun", "whole", "never", "store"]
# 128 + SIGTERM: how a rank ends when its launcher stops it because of another rank.
_STOPPED = 143


@dataclasses.dataclass(frozen=True)
class Ending:
    """How the process ended: its exit code (128 + n for signal n) and its ranks' exit codes since it was started."""

    exit_code: int
    signal: int
    rank_codes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Budget:
    """Restarts used and allowed: ``crashes`` of the program, ``lost`` agents."""

    crashes: int
    lost: int
    max_crashes: int
    max_lost: int
    fatal: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Decision:
    """Restart (and what it is charged to), or end with a code and a cause."""

    restart: bool
    cause: str
    exit_code: int


def decide(kind: Kind, ending: Ending, budget: Budget) -> Decision:
    """Return what to do after ``ending``.

    torchrun restarts crashed ranks itself, within its own budget; its exit with ranks that failed means that the
    budget is spent. Its exit without one (killed, or its store went away) is a lost agent.
    """
    if ending.exit_code == 0 and not ending.signal:
        return Decision(False, "succeeded", 0)
    failed = [code for code in ending.rank_codes if code not in (0, _STOPPED)]
    fatal = [code for code in (*failed, ending.exit_code) if code in budget.fatal]
    if fatal:
        return Decision(False, "fatal_exit_code", fatal[0])
    code = failed[0] if failed else ending.exit_code
    if kind == "never":
        return Decision(False, "crash", code)
    lost = kind == "store" or (kind == "torchrun" and (bool(ending.signal) or not failed))
    if kind == "whole" and ending.signal:
        lost = True
    if lost:
        return Decision(budget.lost < budget.max_lost, "node_lost", code)
    if kind == "torchrun":
        return Decision(False, "crash", code)
    return Decision(budget.crashes < budget.max_crashes, "crash", code)
