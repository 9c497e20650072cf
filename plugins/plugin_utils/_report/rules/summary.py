# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds report.json, the run as values for machines: units are in the names, what is not known is null."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.account import useful_share
from ..data import parsing
from ..data.attempts import AttemptView
from ..data.faults import Fault
from ..data.load import RunFolder
from ..data.run_model import RunModel, build_run_model
from .advice import advise
from .checks import ReportCheck, build_checks
from .verdict import judge_run

SCHEMA = 1


def build_report(run: RunFolder) -> dict[str, object]:
    """Return report.json as a value that JSON can carry.

    Keys: ``schema, run_id, name, outcome, verdict {word, tone, sentence}, measured_on_loopback, cpu_only, job, figures,
    devices [{node, gpus, model, driver, rdma}], attempts, hangs [{attempt, at, seconds, text}], faults,
    checks [{name, status, message}], fabric [verdict], cost, account {wall_s, useful_share,
    seconds {bucket: s}, usd {bucket: USD}}, next [{text, command, path}], site [{name, seconds}], notes``.
    """
    model = build_run_model(run)
    return t.cast(
        dict[str, object],
        parsing.to_json(
            {
                "schema": SCHEMA,
                "run_id": model.run_id,
                "name": model.name,
                "outcome": model.outcome,
                "verdict": dataclasses.asdict(judge_run(model)),
                "measured_on_loopback": model.loopback,
                "cpu_only": model.cpu_only,
                "job": build_job_figures(model),
                "devices": [dataclasses.asdict(item) for item in model.devices],
                "figures": build_figures(model),
                "attempts": [_attempt_values(attempt) for attempt in model.attempts],
                "hangs": [dataclasses.asdict(hang) for hang in model.hangs],
                "faults": [_fault_values(fault) for fault in model.faults],
                "checks": [_check_values(check) for check in build_checks(model)],
                "fabric": [_fabric_values(verdict) for verdict in model.verdicts],
                "cost": {"usd": model.usd, "complete": model.usd_complete, "usd_per_hour": model.usd_per_hour},
                "account": build_account(model),
                "next": [dataclasses.asdict(advice) for advice in advise(model)],
                "site": [dataclasses.asdict(phase) for phase in run.site],
                "notes": list(run.notes),
            }
        ),
    )


def build_job_figures(model: RunModel) -> dict[str, object]:
    """Return the size and origin of the job."""
    record, job, derived = model.run.record, model.job, model.derived
    return {
        "launcher": parsing.read_text(job.get("launcher")) or parsing.read_text(record.get("launcher")),
        "backend": parsing.read_text(record.get("backend")),
        "engine": parsing.read_text(record.get("engine")),
        "nodes": parsing.read_integer(job.get("nodes")),
        "sharing": model.shared_machines,
        "steps_read": dict(model.run.history.steps_read) or None,
        "gpus_per_node": parsing.read_integer(job.get("gpus_per_node")),
        "processes_per_node": parsing.read_integer(derived.get("processes_per_node")),
        "effective_batch": parsing.read_integer(derived.get("effective_batch")),
        "connection": parsing.read_text(derived.get("connection")),
        "code_sha256": parsing.read_text(record.get("code_sha256")),
        "image_digest": parsing.read_text(record.get("image_digest")),
        "submitted_by": parsing.read_text(record.get("submitted_by")),
        "catalogue_template": _template_values(parsing.read_mapping(record.get("catalogue_template"))),
        "versions": {
            parsing.read_text(key, 60) or "": parsing.read_text(version, 60)
            for key, version in parsing.read_mapping(record.get("versions")).items()
        },
    }


def _template_values(found: dict[str, object]) -> dict[str, object] | None:
    """Return the name, version and digest of the template that the job was filled from."""
    return {key: parsing.read_text(found.get(key)) for key in ("name", "version", "digest")} if found else None


def build_account(model: RunModel) -> dict[str, object] | None:
    """Return where the time and the money of a run went, by bucket (``_model/account.py``)."""
    if model.account is None:
        return None
    seconds, usd = model.account
    return {"wall_s": sum(seconds.values()), "useful_share": useful_share(seconds), "seconds": seconds, "usd": usd}


def build_figures(model: RunModel) -> dict[str, object]:
    """Return the figures of a run; ``final_loss`` is the last one, ``steps_per_s`` leaves out restarts and stalls."""
    clock, reported = model.clock, model.throughput is not None
    first = clock.first_step - clock.zero if clock.first_step is not None and clock.zero is not None else None
    return {
        "submitted_at": clock.submitted,
        "duration_s": parsing.read_number(model.run.record.get("duration_s")) or clock.duration,
        "start_to_first_step_s": first,
        "last_step": model.last_step,
        "first_loss": model.first_loss,
        "final_loss": model.final_loss,
        "steps_per_s": model.steps_per_s,
        "throughput": model.throughput,
        "throughput_unit": model.run.unit if reported else None,
        "ranks_asked": model.ranks_asked,
        "ranks_seen": model.ranks_seen,
        "attempts": len(model.attempts),
        "restarts": model.restarts,
        "faults_proven": sum(fault.proof == "proven" for fault in model.faults),
        "steps_lost": model.steps_lost,
        "seconds_lost": model.seconds_lost,
        "checkpoint_interval_steps": model.interval,
        "checkpoint_step": model.checkpoint.step if model.checkpoint else None,
        "checkpoint_step_by": model.checkpoint.step_by if model.checkpoint else None,
        "checkpoint_path": model.checkpoint.path if model.checkpoint else None,
        "stored_step": model.stored_checkpoint.step if model.stored_checkpoint else None,
        "stored_name": model.stored_checkpoint.name if model.stored_checkpoint else None,
        "unstored": parsing.read_text(model.run.record.get("unstored")),
    }


_OF_ATTEMPT = (
    *("label", "start", "end", "cause", "node", "rank", "exit_code", "first_step", "last_step"),
    *("notice", "notice_at"),
)
_OF_FAULT = (
    *("number", "at", "cause", "step", "resumed_from", "steps_lost"),
    *("seconds_lost", "seconds_to_catch_up", "proof"),
)


def _attempt_values(attempt: AttemptView) -> dict[str, object]:
    more = {"drilled": attempt.is_drilled, "nodes": [stay.name for stay in attempt.nodes], "logs": list(attempt.logs)}
    return {name: getattr(attempt, name) for name in _OF_ATTEMPT} | more


def _fault_values(fault: Fault) -> dict[str, object]:
    attempt = {"attempt": fault.attempt.label, "node": fault.attempt.node, "rank": fault.attempt.rank}
    return {name: getattr(fault, name) for name in _OF_FAULT} | attempt | {"reasons": list(fault.reasons)}


def _check_values(check: ReportCheck) -> dict[str, object]:
    return {"name": check.name, "status": check.status, "message": check.message}


def _fabric_values(verdict: dict[str, object]) -> dict[str, object]:
    transport, bandwidth = (
        parsing.read_mapping(verdict.get("transport")),
        parsing.read_mapping(verdict.get("bandwidth")),
    )
    return {
        "island": parsing.read_text(verdict.get("island")),
        "outcome": parsing.read_text(verdict.get("outcome")),
        "lane": parsing.read_text(verdict.get("lane")),
        "transport": parsing.read_text(transport.get("verdict")),
        "busbw_gb_s": parsing.read_number(bandwidth.get("busbw_gb_s")),
        "expected_gb_s": parsing.read_number(bandwidth.get("expected_gb_s")),
        "causes": [parsing.read_text(cause.get("code")) for cause in parsing.read_rows(verdict.get("causes"))],
    }
