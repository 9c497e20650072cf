# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a drill proved, judged as the report judges each fault: a playbook, a report and its JUnit file say the same."""

from __future__ import annotations

import pathlib
import typing as t

from .faults import Fault
from .load import load_run
from .run_model import build_run_model


def judge_drill(folder: pathlib.Path, drilled_at: float) -> dict[str, t.Any]:
    """Return ``{resumed, steps_lost, seconds_to_resume, world_size, problem}`` of the drill at a time (Unix seconds).

    :param folder: the run's folder with its record; ``resumed`` is true only with all of the proof.
    """
    faults = build_run_model(load_run(folder)).faults
    fault = next((item for item in faults if _is_after(item, drilled_at)), None)
    if fault is None:
        return _verdict(None, drilled_at, "no attempt followed the fault")
    problem = "" if fault.proof == "proven" else "; ".join(fault.reasons) or "no checkpoint had been saved before it"
    return _verdict(fault, drilled_at, problem)


def judge_cut(folder: pathlib.Path, cut_at: float, cut_s: float) -> dict[str, t.Any]:
    """Return what a cut proved: that the run resumed, or that its steps went on when the link was back.

    ``seconds_to_notice``: from the cut until the node was reported as silent, None where it was not.
    """
    run = load_run(folder)
    model = build_run_model(run)
    if any(_is_after(fault, cut_at) for fault in model.faults):
        proof = judge_drill(folder, cut_at)
    else:
        later = [step.at for step in model.curve if step.at is not None and step.at > cut_at + cut_s]
        proof = {
            "resumed": bool(later),
            "steps_lost": 0 if later else None,
            "seconds_to_resume": round(min(later) - cut_at, 3) if later else None,
            "world_size": model.ranks_seen,
            "problem": "" if later else "no step followed when the link was back",
        }
    silent = [event.at for event in run.events if event.kind == "node_silent" and event.at >= cut_at]
    return {**proof, "seconds_to_notice": round(min(silent) - cut_at, 3) if silent else None}


def _is_after(fault: Fault, at: float) -> bool:
    return fault.after.start is not None and fault.after.start > at


def _verdict(fault: Fault | None, drilled_at: float, problem: str) -> dict[str, t.Any]:
    stepped_at = fault.settled.first_step_at if fault and fault.settled else None
    return {
        "resumed": fault is not None and not problem,
        "steps_lost": fault.steps_lost if fault else None,
        "seconds_to_resume": round(stepped_at - drilled_at, 3) if stepped_at is not None else None,
        "world_size": fault.world_size if fault else None,
        "problem": problem,
    }
