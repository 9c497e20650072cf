# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on a run: one word, its tone, and one sentence."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....module_utils._model.run_record import STANDING
from ..data import format as fmt
from ..data import parsing
from ..data.load import STOPS
from ..data.run_model import RunModel
from .checks import ReportCheck, build_checks

Tone = t.Literal["ok", "warn", "bad", "live", "calm"]


@dataclasses.dataclass(frozen=True, slots=True)
class RunVerdict:
    """``word`` says the result without its colour; ``tone`` chooses the colour; ``sentence`` ends with a full stop."""

    word: str
    tone: Tone
    sentence: str


_WORDS: dict[str, tuple[str, Tone]] = {
    "succeeded": ("Succeeded", "ok"),
    "failed": ("Failed", "bad"),
    "lost": ("Lost", "bad"),
    "cancelled": ("Cancelled", "calm"),
    "running": ("Running", "live"),
    "waiting": ("Waiting", "live"),
    "unknown": ("Unknown", "warn"),
}


_MOST_REASON = 220


def judge_run(model: RunModel) -> RunVerdict:
    """Return the verdict of a run.

    A success says how many of its claims are proven; only a claim that is disproved takes its colour. A loss that is
    not a number comes before all else: a run that ends well with it has trained nothing.
    """
    word, tone = _WORDS[model.outcome]
    statement = _statement(model)
    claims = [check for check in build_checks(model) if check.status in ("passed", "failed", "unproven")]
    unproven = [check for check in claims if check.status != "passed"]
    sentence = f"{statement}{_fault_words(model)}.{_recorded_cause(model)}"
    if model.outcome == "succeeded":
        word = "Trained" if model.last_step is not None else word
        word = f"{word} \N{MIDDLE DOT} proven {len(claims) - len(unproven)} of {len(claims)}"
        tone = "warn" if any(check.status == "failed" for check in unproven) else tone
        sentence += f" {_unproven_words(unproven)}" if unproven else ""
    if model.steps_problem:
        sentence += f" {model.steps_problem[:1].upper()}{model.steps_problem[1:]}."
    if model.run.record.get("cause") in STANDING:
        word = "Stalled"
    if model.nan_since is not None:
        word, tone = "Loss is NaN", "bad"
        sentence = f"the loss is not a number since step {fmt.format_count(model.nan_since)}; {sentence}"
    return RunVerdict(word, tone, sentence[:1].upper() + sentence[1:])


def _subject(model: RunModel) -> str:
    nodes = parsing.read_integer(model.job.get("nodes"))
    ranks = model.ranks_seen if model.ranks_seen is not None else model.ranks_asked
    where = f" on {fmt.plural(nodes, 'node')}" if nodes else ""
    where = f" in {model.shared_machines}" if model.shared_machines else where
    return f"{fmt.plural(ranks, 'rank')}{where}" if ranks is not None else "the job" + where


def _statement(model: RunModel) -> str:
    step = f"step {fmt.format_count(model.last_step)}"
    spent = f" in {fmt.format_duration(model.clock.duration)}" if model.clock.duration is not None else ""
    reached = model.last_step is not None
    lines = {
        "succeeded": f"{_subject(model)} trained to {step}{spent}" if reached else f"{_subject(model)} finished{spent}",
        "cancelled": f"stopped on request at {step}{_elapsed_words(model)}" if reached else "stopped on request",
        "running": f"{_subject(model)} {'is' if model.ranks_seen == 1 else 'are'} at {step}{_elapsed_words(model)}"
        if reached
        else "the job is running and has logged no step yet",
        "waiting": "the job is submitted and waits for its nodes",
        "unknown": "the record does not say how the job ended" + (f"; it had reached {step}" if reached else ""),
    }
    return lines.get(model.outcome) or _failure_statement(model, step if reached else None)


def _elapsed_words(model: RunModel) -> str:
    return f" after {fmt.format_duration(model.clock.duration)}" if model.clock.duration is not None else ""


def _failure_statement(model: RunModel, step: str | None) -> str:
    asked, seen = model.ranks_asked, model.ranks_seen
    if model.run.record.get("outcome") == "succeeded" and asked is not None:
        return f"the program succeeded, but only {fmt.format_count(seen)} of {fmt.plural(asked, 'rank')} took part"
    last = model.attempts[-1] if model.attempts else None
    tries = f" in {fmt.plural(len(model.attempts), 'attempt')}" if len(model.attempts) > 1 else ""
    where = f"the job reached {step}{tries}" if step else f"the job ended before its first step{tries}"
    if last is None or (last.cause is None and not last.exit_code):
        return where
    recorded = parsing.read_text(model.run.record.get("cause"), 40)
    if recorded in STOPS:
        return f"{where}; it was stopped by {STOPS[recorded]}"
    code = f" (exit code {last.exit_code})" if last.exit_code else ""
    ended_by = describe_cause(last.cause or recorded, last.node)
    return f"{where}; {'the last' if tries else 'it'} was ended by {ended_by}{code}"


def describe_cause(cause: str | None, node: str | None) -> str:
    """Return the end of an attempt as a phrase: ``a crash on node-2``, ``the loss of node-2``."""
    place = f" on {node}" if node else ""
    if cause == "node_lost":
        return f"the loss of {node}" if node else "the loss of a node"
    if cause == "launcher_killed":
        return f"a launcher that was killed{place}"
    if cause == "preempted" and node:
        return f"the preemption of {node}"
    if cause in ("crash", "drill", "hang"):
        return f"a {cause}{place}"
    return f"{cause.replace('_', ' ')}{place}" if cause else "an unknown cause"


def _recorded_cause(model: RunModel) -> str:
    """Return the record's own line about a bad end, without what it says to do."""
    reason = split_detail(model)[0]
    return f" Recorded cause: {reason.rstrip('.')}." if reason else ""


def split_detail(model: RunModel) -> tuple[str, str]:
    """Return why a run ended badly by its record, and the sentences behind that, which say what to do about it."""
    value = model.run.record.get("detail") if model.outcome in ("failed", "lost") else None
    reason, *advice = re.split(r"\. (?=[A-Z])", parsing.read_text(value, 2000) or "", maxsplit=1)
    return fmt.shorten(reason, _MOST_REASON), "".join(advice)


def _fault_words(model: RunModel) -> str:
    if not model.faults or model.outcome in ("failed", "lost"):
        return ""
    total, proven = len(model.faults), sum(fault.proof == "proven" for fault in model.faults)
    drilled = all(fault.attempt.is_drilled for fault in model.faults)
    what = fmt.plural(total, "drilled fault" if drilled else "fault")
    how = "resume proven" if total == 1 else "every resume proven"
    if proven < total:
        how = f"{proven} of {total} resumes proven" if total > 1 else "resume not proven"
        how = "started again at step 0" if all(fault.proof == "fresh" for fault in model.faults) else how
    lost = f", {fmt.plural(model.steps_lost, 'step')} done again" if model.steps_lost is not None else ""
    return f", through {what} ({how}{lost})"


def _unproven_words(checks: t.Sequence[ReportCheck]) -> str:
    names = [check.title[:1].lower() + check.title[1:] for check in checks]
    return f"Not proven: {fmt.join_names(names)}."
