# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job may run on the network of its nodes, by the last fabric verdict. Pure rules.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .errors import RefusedError
from .job import Job

Verdict = t.Mapping[str, t.Any]
_VERIFY = "Run the verify_fabric playbook"


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """What is known of the network: the verdict on the island that holds all nodes (or None), and warnings."""

    verdict: Verdict | None
    warnings: tuple[str, ...]

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Return the measured bus bandwidth in GB/s."""
        found: float | None = (self.verdict or {}).get("bandwidth", {}).get("busbw_gb_s")
        return found


def judge(job: Job, hosts: t.Sequence[str], verdicts: t.Sequence[Verdict]) -> Gate:
    """Return what the verdicts say about a job on ``hosts``.

    Synchronous jobs run on lanes A to C; lane D needs ``allow_slow_network``; lane E, and a fabric that failed, are
    refused (the latter unless ``allow_slow_network`` says that this is known).

    :raises RefusedError: naming the island and what to do.
    """
    if len(hosts) < 2:
        return Gate(None, ())
    verdict = next((item for item in verdicts if set(hosts) <= set(item.get("nodes", []))), None)
    touched = [item for item in verdicts if set(hosts) & set(item.get("nodes", []))]
    slow = job.placement.allow_slow_network
    if verdict is None and len(touched) > 1:
        names = ", ".join(str(item["island"]) for item in touched)
        _refuse(slow, f"the nodes lie on different islands ({names})", "Choose hosts of one island")
        return Gate(None, (f"the nodes lie on different islands: {names}",))
    if verdict is None:
        return Gate(None, (f"the network of these nodes was never verified. {_VERIFY}",))
    name, lane, outcome = verdict["island"], verdict.get("lane"), verdict["outcome"]
    if lane == "E":
        raise RefusedError(
            f"island {name}: its nodes reach each other through a relay only (lane E)", "Get a direct path"
        )
    if lane == "D":
        _refuse(slow, f"island {name} is a mesh or the open network (lane D)", "Choose hosts of one LAN")
    if outcome == "fail":
        reason = next(iter(verdict.get("reasons", [])), "it failed verification")
        _refuse(slow, f"island {name} failed verification: {reason}", f"Mend it and verify again. {_VERIFY}")
    warnings = () if outcome == "pass" else (f"fabric of island {name}: {outcome}",)
    return Gate(verdict, warnings)


def _refuse(allowed: bool, problem: str, fix: str) -> None:
    if not allowed:
        raise RefusedError(problem, f"{fix}, or set job.placement.allow_slow_network: true")
