# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds report.json, the run as values for machines: units are in the names, what is not known is null.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..data import parsing
from ..data.attempts import AttemptView
from ..data.faults import Fault
from ..data.load import RunFolder
from ..data.run_model import RunModel, build_run_model
from .advice import advise
from .checks import ReportCheck, build_checks
from .verdict import judge_run

SCHEMA = 1


def summarise(run: RunFolder) -> dict[str, object]:
    """Return report.json as a value that JSON can carry.

    Keys: ``schema, run_id, name, outcome, verdict {word, tone, sentence}, measured_on_loopback, cpu_only, job, figures,
    attempts, faults, checks [{name, status, message}], fabric [verdict], cost, next [{text, command, path}],
    notes``.
    """
    case = build_run_model(run)
    return t.cast(
        dict[str, object],
        parsing.to_json(
            {
                "schema": SCHEMA,
                "run_id": case.run_id,
                "name": case.name,
                "outcome": case.outcome,
                "verdict": dataclasses.asdict(judge_run(case)),
                "measured_on_loopback": case.loopback,
                "cpu_only": case.cpu_only,
                "job": build_job_figures(case),
                "figures": build_figures(case),
                "attempts": [_attempt(item) for item in case.attempts],
                "faults": [_fault(item) for item in case.faults],
                "checks": [_check(item) for item in build_checks(case)],
                "fabric": [_fabric(item) for item in case.verdicts],
                "cost": {"usd": case.usd, "complete": case.usd_complete, "usd_per_hour": case.usd_per_hour},
                "next": [dataclasses.asdict(item) for item in advise(case)],
                "notes": list(run.notes),
            }
        ),
    )


def build_job_figures(case: RunModel) -> dict[str, object]:
    """Return the size and origin of the job."""
    record, job, derived = case.run.record, case.job, case.derived
    return {
        "launcher": parsing.read_text(job.get("launcher")) or parsing.read_text(record.get("launcher")),
        "backend": parsing.read_text(record.get("backend")),
        "engine": parsing.read_text(record.get("engine")),
        "nodes": parsing.read_integer(job.get("nodes")),
        "gpus_per_node": parsing.read_integer(job.get("gpus_per_node")),
        "processes_per_node": parsing.read_integer(derived.get("processes_per_node")),
        "effective_batch": parsing.read_integer(derived.get("effective_batch")),
        "connection": parsing.read_text(derived.get("connection")),
        "code_sha256": parsing.read_text(record.get("code_sha256")),
        "image_digest": parsing.read_text(record.get("image_digest")),
        "submitted_by": parsing.read_text(record.get("submitted_by")),
        "versions": {
            parsing.read_text(key, 60) or "": parsing.read_text(item, 60)
            for key, item in parsing.read_mapping(record.get("versions")).items()
        },
    }


def build_figures(case: RunModel) -> dict[str, object]:
    """Return the figures of a run; ``final_loss`` is the median of the last ten, ``steps_per_s`` counts faults in."""
    clock, reported = case.clock, case.throughput is not None
    first = clock.first_step - clock.zero if clock.first_step is not None and clock.zero is not None else None
    return {
        "submitted_at": clock.submitted,
        "duration_s": parsing.read_number(case.run.record.get("duration_s")) or clock.duration,
        "start_to_first_step_s": first,
        "last_step": case.last_step,
        "first_loss": case.first_loss,
        "final_loss": case.final_loss,
        "steps_per_s": case.steps_per_s,
        "throughput": case.throughput,
        "throughput_unit": case.run.unit if reported else None,
        "ranks_asked": case.ranks_asked,
        "ranks_seen": case.ranks_seen,
        "attempts": len(case.attempts),
        "restarts": case.restarts,
        "faults_proven": sum(item.proof == "proven" for item in case.faults),
        "steps_lost": case.steps_lost,
        "seconds_lost": case.seconds_lost,
        "checkpoint_interval_steps": case.interval,
        "checkpoint_step": case.checkpoint.step if case.checkpoint else None,
        "checkpoint_path": case.checkpoint.path if case.checkpoint else None,
    }


_OF_ATTEMPT = ("label", "start", "end", "cause", "node", "rank", "exit_code", "first_step", "last_step")
_OF_FAULT = (
    *("number", "at", "cause", "step", "resumed_from", "steps_lost"),
    *("seconds_lost", "seconds_to_catch_up", "proof"),
)


def _attempt(item: AttemptView) -> dict[str, object]:
    more = {"drilled": item.is_drilled, "nodes": [stay.name for stay in item.nodes], "logs": list(item.logs)}
    return {name: getattr(item, name) for name in _OF_ATTEMPT} | more


def _fault(item: Fault) -> dict[str, object]:
    whose = {"attempt": item.attempt.label, "node": item.attempt.node, "rank": item.attempt.rank}
    return {name: getattr(item, name) for name in _OF_FAULT} | whose | {"reasons": list(item.reasons)}


def _check(item: ReportCheck) -> dict[str, object]:
    return {"name": item.name, "status": item.status, "message": item.message}


def _fabric(verdict: dict[str, object]) -> dict[str, object]:
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
