# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a run: the same list is the JUnit suite, the proof table of the page and a part of the verdict.

A check without evidence is ``unproven``, which is not a pass; one that does not apply (yet) is ``skipped``.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..data import format as fmt
from ..data import parsing
from ..data.faults import Fault
from ..data.load import STOPS
from ..data.run_model import RunModel

Status = t.Literal["passed", "failed", "unproven", "skipped"]


_NO_NETWORK = "what they exchanged proves no network"


@dataclasses.dataclass(frozen=True, slots=True)
class ReportCheck:
    """One check: ``name`` for machines, ``title`` and ``message`` for people."""

    name: str
    title: str
    status: Status
    message: str


def build_checks(model: RunModel) -> tuple[ReportCheck, ...]:
    """Return all checks of a run: its outcome, its ranks, each resume, and the fabric."""
    checks = [_check_outcome(model), _check_ranks(model)]
    for fault in model.faults:
        checks += [_check_resume(fault), _check_steps(fault, model.interval)]
    checks += [_check_fabric(model, verdict) for verdict in model.verdicts]
    if not model.verdicts:
        checks.append(ReportCheck("fabric", "Fabric", "skipped", "the network was not measured for this run"))
    if model.shared_machines:
        checks.append(
            ReportCheck("machines", "A machine for each node", "unproven", f"{model.shared_machines}: {_NO_NETWORK}")
        )
    return (*checks, *_check_stored(model), *_check_transport(model), *_check_software(model))


def _check_stored(model: RunModel) -> t.Iterator[ReportCheck]:
    """Yield whether the newest checkpoint of a run that has an object store for them is there."""
    unstored = parsing.read_text(model.run.record.get("unstored"))
    if unstored:
        yield ReportCheck("stored", "Checkpoint stored", "failed", unstored)
    elif model.stored_checkpoint is not None and model.clock.over:
        message = (
            f"the newest checkpoint is in {model.store_name or 'the object store'} as {model.stored_checkpoint.name}"
        )
        yield ReportCheck("stored", "Checkpoint stored", "passed", message)


def _check_outcome(model: RunModel) -> ReportCheck:
    status: dict[str, Status] = {"succeeded": "passed", "running": "skipped", "waiting": "skipped"}
    code = parsing.read_integer(model.run.record.get("exit_code"))
    messages = {
        "succeeded": "the job ended with exit code 0" if code == 0 else "the job succeeded",
        "running": "the job is still running",
        "waiting": "the job has not started yet",
        "cancelled": "the job was cancelled",
        "lost": "the job was lost: its nodes did not return",
        "unknown": "the record does not say how the job ended",
    }
    stop = STOPS.get(str(model.run.record.get("cause")))
    failed = (
        f"the job was stopped by {stop}" if stop else "the job failed" + (f" with exit code {code}" if code else "")
    )
    result = "unproven" if model.outcome == "unknown" else status.get(model.outcome, "failed")
    return ReportCheck("outcome", "Completed", result, messages.get(model.outcome, failed))


def _check_ranks(model: RunModel) -> ReportCheck:
    asked, seen = model.ranks_asked, model.ranks_seen
    if asked is None or seen is None:
        missing = "asked for" if asked is None else "seen"
        early = model.outcome in ("running", "waiting")
        message = f"the number of ranks {missing} is not known"
        return ReportCheck("attendance", "All ranks took part", "skipped" if early else "unproven", message)
    message = f"{fmt.format_count(seen)} of {fmt.plural(asked, 'rank')} took part"
    return ReportCheck(
        "attendance", "All ranks took part", "passed" if seen >= (model.ranks_needed or asked) else "failed", message
    )


def describe_fault(fault: Fault) -> str:
    """Return a fault as a phrase: ``fault 1 (crash) on node-2, rank 1``."""
    place = f" on {fault.attempt.node}" if fault.attempt.node else ""
    rank = f", rank {fault.attempt.rank}" if fault.attempt.rank is not None else ""
    return f"fault {fault.number} ({fault.cause.replace('_', ' ')}){place}{rank}"


def _check_resume(fault: Fault) -> ReportCheck:
    status: dict[str, Status] = {"proven": "passed", "fresh": "skipped", "unproven": "unproven"}
    if fault.reasons:
        message = f"{describe_fault(fault)}: " + "; ".join(fault.reasons)
    elif fault.proof == "fresh":
        message = f"{describe_fault(fault)}: no checkpoint had been saved; the job started again from the beginning"
    elif fault.resumed_from is None:
        message = (
            f"{describe_fault(fault)}: {fault.steps_lost} steps were repeated by the program's own step counter, "
            f"world size {fault.world_size}"
        )
    else:
        message = (
            f"{describe_fault(fault)}: continued from the checkpoint of step {fault.resumed_from}, "
            f"world size {fault.world_size}"
        )
    result = status.get(fault.proof, "failed")
    return ReportCheck(f"resume-{fault.number}", f"Resume after fault {fault.number}", result, message)


def _check_steps(fault: Fault, interval: int | None) -> ReportCheck:
    name, title = f"steps-lost-{fault.number}", f"Steps lost in fault {fault.number}"
    if fault.steps_lost is None:
        return ReportCheck(name, title, "skipped", "the steps lost are not known")
    if interval is None:
        return ReportCheck(
            name, title, "skipped", f"{fault.steps_lost} steps lost; the checkpoint interval is not known"
        )
    status: Status = "passed" if fault.steps_lost <= interval else "failed"
    return ReportCheck(name, title, status, f"{fault.steps_lost} steps lost, checkpoint interval {interval}")


def _check_transport(model: RunModel) -> t.Iterator[ReportCheck]:
    """Yield the check of what carried the run's collectives, where its ranks show it."""
    seen = parsing.read_mapping(model.run.record.get("transport"))
    verdict, drift = parsing.read_text(seen.get("verdict"), 20), seen.get("drift")
    lines = [text for line in (drift if isinstance(drift, list) else []) if (text := parsing.read_text(line))]
    if lines:
        yield ReportCheck("transport", "Network as tested", "failed", "; ".join(lines))
    elif verdict and verdict != "unproven":
        yield ReportCheck("transport", "Network as tested", "passed", f"the run's collectives used {verdict}")


def _check_software(model: RunModel) -> t.Iterator[ReportCheck]:
    """Yield a failed check when nodes of the run had different images or versions."""
    found = model.run.record.get("differences")
    lines = [text for line in (found if isinstance(found, list) else []) if (text := parsing.read_text(line))]
    if lines:
        yield ReportCheck("software", "Same image and versions", "failed", "; ".join(lines))


def _check_fabric(model: RunModel, verdict: dict[str, t.Any]) -> ReportCheck:
    """Return what the fabric test proved of the network that the run used: nothing of one that it did not use."""
    island = parsing.read_text(verdict.get("island"), 80) or "island"
    outcome = parsing.read_text(verdict.get("outcome"), 20) or "unproven"
    statuses: dict[str, Status] = {"pass": "passed", "warn": "passed", "fail": "failed"}
    bandwidth = parsing.read_mapping(verdict.get("bandwidth"))
    busbw, expected = (
        parsing.read_number(bandwidth.get("busbw_gb_s")),
        parsing.read_number(bandwidth.get("expected_gb_s")),
    )
    rate = f", {fmt.format_figure(busbw)} GB/s" if busbw is not None else ""
    rate += f" of {fmt.format_figure(expected)} GB/s expected" if busbw is not None and expected is not None else ""
    transport = parsing.read_text(parsing.read_mapping(verdict.get("transport")).get("verdict"), 20) or "unproven"
    message = f"{outcome}: transport {transport}{rate}"
    status = statuses.get(outcome, "unproven")
    if model.is_on_one_machine:
        status = "unproven" if model.shared_machines else "skipped"
        message = f"the run was on one machine and used no network; the test of it said {message}"
    return ReportCheck(f"fabric-{island}", f"Fabric of {island}", status, message)
