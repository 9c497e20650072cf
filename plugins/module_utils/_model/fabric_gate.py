# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job may run on the network of its nodes, by the last fabric verdict. Pure rules.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
import typing as t

from .errors import MusterError, RefusedError
from .job import Job

VerdictRecord = t.Mapping[str, t.Any]
_VERIFY = "Run the verify_fabric playbook"
# Links flap and nodes are re-cabled: what was proven longer ago than this is worth a look before a long run.
STALE_DAYS = 7.0


@dataclasses.dataclass(frozen=True, slots=True)
class FabricGate:
    """What is known of the network: the verdict on the island that holds all nodes (or None), and warnings."""

    verdict: VerdictRecord | None
    warnings: tuple[str, ...]

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Return the measured bus bandwidth in GB/s."""
        found: float | None = ((self.verdict or {}).get("bandwidth") or {}).get("busbw_gb_s")
        return found


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
    # Older writers left out what they did not know.
    known = (
        [{"lane": None, **item} for item in verdicts if _is_readable(item)]
        if isinstance(verdicts, (list, tuple))
        else []
    )
    damaged = bool(verdicts) and (not isinstance(verdicts, (list, tuple)) or len(known) < len(verdicts))
    notes = (f"a part of fabric.json is damaged and was left out. {_VERIFY}",) if damaged else ()
    verdict = next((item for item in known if set(hosts) <= set(item.get("nodes") or [])), None)
    if verdict is None:
        return FabricGate(None, (*notes, _warn_unverified_nodes(job, hosts, known)))
    name, lane, outcome = verdict["island"], verdict.get("lane"), verdict["outcome"]
    slow = job.placement.allow_slow_network
    if lane == "E":
        raise RefusedError(
            f"island {name}: its nodes reach each other through a relay only (lane E)", "Get a direct path"
        )
    if lane == "D":
        _refuse_unless_allowed(slow, f"island {name} is a mesh or the open network (lane D)", "Choose hosts of one LAN")
    if outcome == "fail":
        _refuse_unless_allowed(
            slow, f"island {name} failed verification: {_first_reason(verdict)}", f"Mend it and verify again. {_VERIFY}"
        )
    return FabricGate(verdict, (*notes, *_verdict_warnings(verdict, time.time() if now is None else now)))


def _is_readable(item: t.Any) -> bool:
    """Return whether an entry is a verdict as it is written, with the list of its nodes."""
    if not isinstance(item, dict):
        return False
    lists = [item.get(key) or [] for key in ("nodes", "reasons", "drift")]
    if not all(isinstance(value, list) and all(isinstance(one, str) for one in value) for value in lists):
        return False
    # Imported when there is a verdict to read: a start without one need not wait for it.
    from .verdict import Verdict as VerdictValue

    try:
        VerdictValue.from_dict(item)
    except MusterError:
        return False
    return True


def _warn_unverified_nodes(job: Job, hosts: t.Sequence[str], known: t.Sequence[VerdictRecord]) -> str:
    """Return the warning for nodes that no verdict holds together; several islands are refused unless allowed."""
    touched = [item for item in known if set(hosts) & set(item.get("nodes") or [])]
    names = ", ".join(str(item["island"]) for item in touched)
    if len(touched) > 1:
        problem = f"the nodes lie on different islands ({names})"
        _refuse_unless_allowed(job.placement.allow_slow_network, problem, "Choose hosts of one island")
        return f"the nodes lie on different islands: {names}"
    missing = [host for host in hosts if not any(host in (item.get("nodes") or []) for item in known)]
    if touched and missing:
        return f"the network of {', '.join(missing[:8])} was never verified. {_VERIFY}"
    return f"the network of these nodes was never verified. {_VERIFY}"


def _verdict_warnings(verdict: VerdictRecord, now: float) -> t.Iterator[str]:
    name, outcome = verdict["island"], verdict["outcome"]
    if outcome != "pass":
        yield f"fabric of island {name}: {outcome} ({_first_reason(verdict)})"
    for line in verdict.get("drift") or []:
        yield f"fabric of island {name} has changed: {line}"
    age = _age_days(verdict.get("started_at"), now)
    if age is not None and age > STALE_DAYS:
        yield f"fabric of island {name} was verified {age:.0f} days ago. {_VERIFY}"


def _first_reason(verdict: VerdictRecord) -> str:
    default = "it failed verification" if verdict["outcome"] == "fail" else "no reason was noted"
    return str(next(iter(verdict.get("reasons") or []), default))


def _age_days(started_at: t.Any, now: float) -> float | None:
    """Return the days since an ISO 8601 time; None when there is none."""
    try:
        began = datetime.datetime.fromisoformat(str(started_at))
    except ValueError:
        return None
    # A time without a zone is one of ours, and ours are UTC.
    began = began if began.tzinfo else began.replace(tzinfo=datetime.timezone.utc)
    return (now - began.timestamp()) / 86400


def _refuse_unless_allowed(allowed: bool, problem: str, fix: str) -> None:
    if not allowed:
        raise RefusedError(problem, f"{fix}, or set job.placement.allow_slow_network: true")
