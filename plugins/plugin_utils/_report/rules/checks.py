# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has to prove, as checks: the same list is the JUnit suite, the proof table and a part of the verdict.

A check without evidence is ``unproven``, which is not a pass; one that does not apply (yet) is ``skipped``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..data import format as w
from ..data import parsing as v
from ..data.faults import Fault
from ..data.run_model import Case

Status = t.Literal["passed", "failed", "unproven", "skipped"]


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One claim: ``name`` for machines, ``title`` and ``message`` for people."""

    name: str
    title: str
    status: Status
    message: str


def make_checks(case: Case) -> tuple[Check, ...]:
    """Return all checks of a run, in the order in which a person asks: did it end well, with all, and survive."""
    found = [_outcome(case), _attendance(case)]
    for fault in case.faults:
        found += [_resume(fault), _steps(fault, case.interval)]
    found += [_fabric(verdict) for verdict in case.verdicts]
    if not case.verdicts:
        found.append(Check("fabric", "Fabric", "skipped", "the network was not measured for this run"))
    return tuple(found)


def _outcome(case: Case) -> Check:
    status: dict[str, Status] = {"succeeded": "passed", "running": "skipped", "waiting": "skipped"}
    code = v.whole(case.run.record.get("exit_code"))
    messages = {
        "succeeded": "the job ended with exit code 0" if code == 0 else "the job ended as succeeded",
        "running": "the job is still running",
        "waiting": "the job has not started yet",
        "cancelled": "the job was cancelled",
        "lost": "the job was lost: its nodes did not come back",
        "unknown": "the record does not say how the job ended",
    }
    failed = "the job failed" + (f" with exit code {code}" if code else "")
    result = "unproven" if case.outcome == "unknown" else status.get(case.outcome, "failed")
    return Check("outcome", "Ran to its end", result, messages.get(case.outcome, failed))


def _attendance(case: Case) -> Check:
    asked, seen = case.ranks_asked, case.ranks_seen
    if asked is None or seen is None:
        missing = "asked" if asked is None else "seen"
        early = case.outcome in ("running", "waiting")
        message = f"the number of ranks {missing} is not known"
        return Check("attendance", "All ranks took part", "skipped" if early else "unproven", message)
    message = f"{w.count(seen)} of {w.plural(asked, 'rank')} took part"
    return Check("attendance", "All ranks took part", "passed" if seen >= asked else "failed", message)


def fault_title(fault: Fault) -> str:
    """Return a fault as a phrase: ``fault 1 (crash, asked for by a drill) on node-2, rank 1``."""
    drill = ", a drill" if fault.attempt.drilled and fault.cause != "drill" else ""
    place = f" on {fault.attempt.node}" if fault.attempt.node else ""
    rank = f", rank {fault.attempt.rank}" if fault.attempt.rank is not None else ""
    return f"fault {fault.number} ({fault.cause.replace('_', ' ')}{drill}){place}{rank}"


def _resume(fault: Fault) -> Check:
    status: dict[str, Status] = {"proven": "passed", "fresh": "skipped", "unproven": "unproven"}
    if fault.reasons:
        message = f"{fault_title(fault)}: " + "; ".join(fault.reasons)
    elif fault.proof == "fresh":
        message = f"{fault_title(fault)}: no checkpoint had been recorded, the job began again at step 0"
    else:
        size = fault.after.segment.world_size if fault.after.segment else None
        message = f"{fault_title(fault)}: continued from the checkpoint of step {fault.resumed_from}, world size {size}"
    result = status.get(fault.proof, "failed")
    return Check(f"resume-{fault.number}", f"Resume after fault {fault.number}", result, message)


def _steps(fault: Fault, interval: int | None) -> Check:
    name, title = f"steps-lost-{fault.number}", f"Steps lost in fault {fault.number}"
    if fault.steps_lost is None:
        return Check(name, title, "skipped", "the steps lost are not known")
    if interval is None:
        return Check(name, title, "skipped", f"{fault.steps_lost} steps lost; the checkpoint interval is not known")
    status: Status = "passed" if fault.steps_lost <= interval else "failed"
    return Check(name, title, status, f"{fault.steps_lost} steps lost, checkpoint interval {interval}")


def _fabric(verdict: dict[str, t.Any]) -> Check:
    island = v.text(verdict.get("island"), 80) or "island"
    outcome = v.text(verdict.get("outcome"), 20) or "unproven"
    statuses: dict[str, Status] = {"pass": "passed", "warn": "passed", "fail": "failed"}
    bandwidth = v.mapping(verdict.get("bandwidth"))
    busbw, expected = v.number(bandwidth.get("busbw_gb_s")), v.number(bandwidth.get("expected_gb_s"))
    rate = f", {w.figure(busbw)} GB/s" if busbw is not None else ""
    rate += f" of {w.figure(expected)} GB/s expected" if busbw is not None and expected is not None else ""
    transport = v.text(v.mapping(verdict.get("transport")).get("verdict"), 20) or "unproven"
    message = f"{outcome}: transport {transport}{rate}"
    return Check(f"fabric-{island}", f"Fabric of {island}", statuses.get(outcome, "unproven"), message)
