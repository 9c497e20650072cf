# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The restart policy of a supervisor when its process ends: a pure rule."""

from __future__ import annotations

import typing as t

PolicyKind = t.Literal["torchrun", "whole", "never", "store"]
# 128 + SIGTERM: how a rank ends when its launcher stops it because of another rank.
_STOPPED = 143


# No dataclasses here: importing that module takes as long as all other imports of a supervisor.
class Ending(t.NamedTuple):
    """How the process ended: its exit code (128 + n for signal n), and its ranks.

    ``rank_codes`` are the exit codes of its ranks by attempt; ``unfinished`` counts ranks that recorded none.
    ``disk_full``: the disk of the run has no room, so that ranks could not record what they did. ``rendezvous`` is why
    torchrun's rendezvous let none of it in: ``closed``, or ``timeout``.
    """

    exit_code: int
    signal: int
    rank_codes: tuple[tuple[int, ...], ...]
    unfinished: int = 0
    disk_full: bool = False
    rendezvous: str = ""

    @property
    def cut_off(self) -> bool:
        """Return whether ranks of the last attempt ended badly, or not by themselves."""
        return bool(self.unfinished or any(self.rank_codes[-1] if self.rank_codes else ()))

    def failed_attempts(self) -> list[tuple[int, ...]]:
        """Return the exit codes of the attempts with failed ranks, without those of ranks that were stopped."""
        attempts = [tuple(code for code in codes if code not in (0, _STOPPED)) for codes in self.rank_codes]
        return [codes for codes in attempts if codes]


class Budget(t.NamedTuple):
    """Restarts used and allowed: ``crashes`` of the program, ``lost`` agents, and what the launcher does itself."""

    crashes: int
    lost: int
    max_crashes: int
    max_lost: int
    fatal: tuple[int, ...]
    launcher_restarts: int = 0


class Decision(t.NamedTuple):
    """Restart (and what it is charged to), or end with a code and a cause."""

    restart: bool
    cause: str
    exit_code: int


def decide(kind: PolicyKind, ending: Ending, budget: Budget) -> Decision:
    """Return the decision after ``ending``.

    torchrun restarts failed ranks itself. If it ends although fewer attempts failed than it may restart, it was killed,
    or its rendezvous store was lost with the first node. That counts as a lost agent, not as a crash. A rendezvous that
    another node's end has closed, or to which the others did not come in time, stays closed: no node was lost by that,
    and no restart helps.
    """
    # PRRTE's mpirun (Open MPI 5.0.7) ends with 0 after "lost communication with a remote daemon".
    if ending.exit_code == 0 and not ending.signal and not (kind == "whole" and ending.cut_off):
        return Decision(False, "succeeded", 0)
    failed = ending.failed_attempts()
    last = failed[-1] if failed else ()
    fatal = [code for code in (*last, ending.exit_code) if code in budget.fatal]
    if fatal:
        return Decision(False, "fatal_exit_code", fatal[0])
    code = last[0] if last else ending.exit_code or 1
    if ending.disk_full:
        # No rank could save or record anything, and none could after a restart. The machine is not lost.
        return Decision(False, "disk_full", code)
    if kind == "never":
        return Decision(False, "crash", code)
    if ending.rendezvous and not ending.signal:
        return Decision(False, f"rendezvous_{ending.rendezvous}", code)
    if _is_lost(kind, ending, len(failed), budget):
        return Decision(budget.lost < budget.max_lost, "node_lost", code)
    if kind == "torchrun":
        return Decision(False, "crash", code)
    return Decision(budget.crashes < budget.max_crashes, "crash", code)


def _is_lost(kind: PolicyKind, ending: Ending, failed: int, budget: Budget) -> bool:
    if kind == "store" or ending.signal or ending.exit_code == 0:
        return True
    return kind == "torchrun" and failed <= budget.launcher_restarts
