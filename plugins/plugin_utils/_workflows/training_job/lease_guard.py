# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who looks after the machines of a followed run: nobody for owned ones, the rules of the ledger for rented ones.

Everything about renting is imported only when something is rented: a start on owned machines does not pay for it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ..shared.state_dir import StateHome
from .hosts.state import Dict, Plan, Request

_LEDGER = "ledger.jsonl"


class Custody(t.Protocol):
    """What a follower asks."""

    def over(self) -> str:
        """Return why the run has to end now, empty while it may go on."""

    def end(self, result: Dict, outcome: str) -> Dict:
        """Give back what the run's end makes due; return the result with what came of that."""


class Nobody:
    """The custody of machines that nobody rents: the run may go on, and nothing is given back."""

    def over(self) -> str:
        """Return that nothing ends the run."""
        return ""

    def end(self, result: Dict, outcome: str) -> Dict:
        """Return the result as it is."""
        del outcome
        return result


def begin(request: Request, home: StateHome, plan: Plan) -> Custody:
    """Return the custody of a planned run that begins, or goes on."""
    wanted = plan.job.release != "never" or plan.job.max_cost_usd is not None
    rented = any(host.node.get("ownership") == "rented" for host in plan.hosts)
    if not wanted and not rented and not _has_ledger(home):
        return Nobody()
    from ..node_pool import run_leases

    return run_leases.guard_run(request, home, plan)


def ended(request: Request, home: StateHome, run_id: str, result: Dict, outcome: str) -> Dict:
    """Return the result of a run that had ended, or was cancelled, after giving back what that makes due."""
    if not _has_ledger(home):
        return result
    from ..node_pool import run_leases

    return run_leases.delete_after_end(request, home, run_id, result, outcome)


def _has_ledger(home: StateHome) -> bool:
    return (home.folder / _LEDGER).exists()
