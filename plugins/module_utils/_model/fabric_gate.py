# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job may run on the network of its nodes, by the last fabric verdict. Pure rules."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from . import advice
from .errors import MusterError, RefusedError
from .job import Job
from .timestamps import read_time

VerdictRecord = t.Mapping[str, t.Any]
_VERIFY = "Run the verify_fabric playbook"
# It labels the nodes of a cluster, which a member of a team may not.
_VERIFY_PODS = f"{_VERIFY} as an administrator of the cluster, or have it run"
# Links flap and nodes are re-cabled: an older verdict should be renewed before a long run.
STALE_DAYS = 7.0
# The way that keeps all nodes in use without a gang between them.
PER_ISLAND = "train on each island with a job of its own (placement.island)"


@dataclasses.dataclass(frozen=True, slots=True)
class FabricGate:
    """The verdict on the island that holds all nodes of a job (None without one), and warnings."""

    verdict: VerdictRecord | None
    warnings: tuple[str, ...]

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Return the measured bus bandwidth in GB/s."""
        return bandwidth_of(self.verdict or {})


def judge_fabric(
    job: Job, hosts: t.Sequence[str], verdicts: t.Sequence[VerdictRecord] | t.Any, now: float | None = None
) -> FabricGate:
    """Return what the verdicts say about a job on ``hosts``.

    Synchronous jobs run on lanes A to C; lane D needs ``allow_slow_network``; lane E, and a fabric that failed, are
    refused (the latter unless ``allow_slow_network`` says that this is known). What passed with a warning, is
    unproven, was never verified or was verified more than ``STALE_DAYS`` days ago lets the job run with a warning.

    :param verdicts: the islands of ``fabric.json``; entries that are no verdicts are left out with a warning.
    :param now: Unix seconds to judge the verdict's age by; the default is the clock.
    :raises RefusedError: naming the island and what to do.
    """
    if len(hosts) < 2:
        return FabricGate(None, ())
    gate = _judge_verdicts(job, hosts, verdicts, now)
    if not job.on_kubernetes:
        return gate
    return dataclasses.replace(gate, warnings=tuple(text.replace(_VERIFY, _VERIFY_PODS) for text in gate.warnings))


def _judge_verdicts(
    job: Job, hosts: t.Sequence[str], verdicts: t.Sequence[VerdictRecord] | t.Any, now: float | None
) -> FabricGate:
    entries = verdicts if isinstance(verdicts, (list, tuple)) else []
    readable = readable_verdicts(entries)
    damaged = bool(verdicts) and len(readable) < max(1, len(entries))
    notes = (f"a part of fabric.json is damaged and was ignored. {_VERIFY}",) if damaged else ()
    verdict = next((entry for entry in readable if set(hosts) <= set(entry.get("nodes") or [])), None)
    if verdict is None:
        return FabricGate(None, (*notes, _warn_unverified_nodes(job, hosts, readable)))
    name, lane, outcome = verdict["island"], verdict.get("lane"), verdict["outcome"]
    slow = job.placement.allow_slow_network
    if lane == "E":
        raise RefusedError(
            f"island {name}: its nodes reach each other through a relay only (lane E)", "Get a direct path"
        )
    if lane == "D":
        wait = advice.describe_slow_step(job, bandwidth_of(verdict))
        problem = f"island {name} is a mesh or the open network (lane D): {wait}"
        _refuse_unless_allowed(slow, problem, f"Choose hosts of one LAN, {PER_ISLAND}")
    if outcome == "fail":
        _refuse_unless_allowed(
            slow,
            f"island {name} failed verification: {_first_reason(verdict)}",
            f"Repair it and verify again. {_VERIFY}",
        )
    return FabricGate(verdict, (*notes, *warn_of_verdict(verdict, now)))


def readable_verdicts(entries: t.Sequence[t.Any]) -> list[VerdictRecord]:
    """Return the entries of fabric.json that are whole verdicts with a list of nodes."""
    # Older versions left out the lane when it was unknown.
    return [{"lane": None, "nodes": [], **entry} for entry in entries if _is_readable(entry)]


def bandwidth_of(verdict: VerdictRecord) -> float | None:
    """Return the measured bus bandwidth of a verdict in GB/s."""
    busbw: float | None = (verdict.get("bandwidth") or {}).get("busbw_gb_s")
    return busbw


def _is_readable(entry: t.Any) -> bool:
    """Return whether an entry of fabric.json is a whole verdict, with the list of its nodes."""
    if not isinstance(entry, dict):
        return False
    lists = [entry.get(key) or [] for key in ("nodes", "reasons", "drift")]
    if not all(isinstance(value, list) and all(isinstance(one, str) for one in value) for value in lists):
        return False
    # Imported only when there is a verdict to read: it costs milliseconds.
    from .verdict import Verdict as VerdictValue

    try:
        VerdictValue.from_dict(entry)
    except MusterError:
        return False
    return True


def _warn_unverified_nodes(job: Job, hosts: t.Sequence[str], verdicts: t.Sequence[VerdictRecord]) -> str:
    """Return the warning for nodes that no single verdict contains; several islands are refused unless allowed."""
    islands = [entry for entry in verdicts if set(hosts) & set(entry.get("nodes") or [])]
    names = ", ".join(str(entry["island"]) for entry in islands)
    if len(islands) > 1:
        problem = f"the nodes are on different islands ({names}): {advice.describe_slow_step(job)}"
        _refuse_unless_allowed(job.placement.allow_slow_network, problem, f"Choose hosts of one island, {PER_ISLAND}")
        return f"the nodes are on different islands: {names}"
    missing = [host for host in hosts if not any(host in (entry.get("nodes") or []) for entry in verdicts)]
    if islands and missing:
        return f"the network of {', '.join(missing[:8])} was never verified. {_VERIFY}"
    return f"the network of these nodes was never verified. {_VERIFY}"


def warn_of_verdict(verdict: VerdictRecord, now: float | None = None) -> t.Iterator[str]:
    """Yield what a verdict says against the network, and its age when it should be renewed."""
    now = time.time() if now is None else now
    name, outcome = verdict["island"], verdict["outcome"]
    if outcome != "pass":
        yield f"fabric of island {name}: {outcome} ({_first_reason(verdict)})"
    for line in verdict.get("drift") or []:
        if line.startswith("outcome:"):
            # A worse one is in the line above, and a better one does not warn.
            continue
        yield f"fabric of island {name} has changed: {line}"
    age = _age_days(verdict.get("started_at"), now)
    if age is not None and age > STALE_DAYS:
        yield f"fabric of island {name} was verified {age:.0f} days ago. {_VERIFY}"


def _first_reason(verdict: VerdictRecord) -> str:
    default = "it failed verification" if verdict["outcome"] == "fail" else "no reason was recorded"
    return str(next(iter(verdict.get("reasons") or []), default))


def _age_days(started_at: t.Any, now: float) -> float | None:
    """Return the days since an ISO 8601 time; None when there is none."""
    began = read_time(started_at)
    return None if began is None else (now - began) / 86400


def _refuse_unless_allowed(allowed: bool, problem: str, fix: str) -> None:
    if not allowed:
        raise RefusedError(problem, f"{fix}, or set job.placement.allow_slow_network: true")
