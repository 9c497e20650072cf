# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance of a fleet as values (``accept.json``): parts with an outcome each, and the outcome of all. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from .verdict import OUTCOMES, Outcome, exit_code, worst_outcome

SCHEMA = 1
PartOutcome = t.Literal["pass", "warn", "fail", "unproven", "not_applicable"]
RunRecord = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class AcceptancePart:
    """One test of the acceptance: its result in one line, the reasons and the figures."""

    name: str
    outcome: PartOutcome
    summary: str
    reasons: tuple[str, ...] = ()
    values: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the entry of accept.json."""
        head = {"name": self.name, "outcome": self.outcome, "summary": self.summary, "reasons": list(self.reasons)}
        return {**head, **self.values}


def overall_outcome(parts: t.Iterable[AcceptancePart]) -> Outcome:
    """Return the worst outcome of the parts that apply; ``unproven`` when none applies."""
    return worst_outcome(part.outcome for part in parts if part.outcome in OUTCOMES)


def build_document(parts: t.Sequence[AcceptancePart], **values: t.Any) -> dict[str, t.Any]:
    """Return accept.json: ``schema``, ``outcome``, ``exit_code``, the given values, and ``parts``."""
    outcome = overall_outcome(parts)
    head = {"schema": SCHEMA, "outcome": outcome, "exit_code": exit_code(outcome)}
    return {**head, **values, "parts": [part.to_dict() for part in parts]}


def judge_queue(first: RunRecord, second: RunRecord) -> AcceptancePart:
    """Judge two gangs that were submitted together where only one fits; both are run records.

    One must run with all its ranks to its end before the other starts; neither may hold a part of the quota.
    """
    runs = sorted((first, second), key=lambda record: str(_last_attempt(record).get("started_at") or "~"))
    values = {"runs": [_run_times(record) for record in runs]}
    for record in runs:
        if record.get("outcome") != "succeeded":
            reason = f"run {record.get('run_id')} {record.get('outcome')}: {record.get('detail')}"
            return AcceptancePart("queue", "fail", "one of two gangs did not run to its end", (reason,), values)
        size = record.get("world_size") or {}
        if size.get("seen") != size.get("asked"):
            reason = f"run {record.get('run_id')} started {size.get('seen')} of {size.get('asked')} ranks"
            return AcceptancePart("queue", "fail", "a gang ran with a part of its ranks", (reason,), values)
    ended, began = _last_attempt(runs[0]).get("ended_at"), _last_attempt(runs[1]).get("started_at")
    if not ended or not began:
        return AcceptancePart("queue", "unproven", "the run records have no start and end times", (), values)
    if began < ended:
        fix = "Choose nodes and resources so that the queue's quota holds one gang and not two"
        return AcceptancePart("queue", "unproven", "both gangs ran at once: the quota has room for two", (fix,), values)
    return AcceptancePart(
        "queue", "pass", "the second gang was queued with all its ranks until the first had ended, then ran", (), values
    )


def _last_attempt(record: RunRecord) -> t.Mapping[str, t.Any]:
    attempts = record.get("attempts") or [{}]
    return t.cast("t.Mapping[str, t.Any]", attempts[-1])


def _run_times(record: RunRecord) -> dict[str, t.Any]:
    attempt = _last_attempt(record)
    return {"run_id": record.get("run_id"), "began": attempt.get("started_at"), "ended": attempt.get("ended_at")}


def judge_user_ids(ranks: t.Iterable[tuple[str, int]]) -> AcceptancePart:
    """Judge under which user ids the ranks ran: (node, user id) of each."""
    user_ids = sorted(set(ranks))
    values = {"uids": [{"node": node, "uid": uid} for node, uid in user_ids]}
    roots = [node for node, uid in user_ids if uid == 0]
    if not user_ids:
        return AcceptancePart("user", "unproven", "no rank reported its user id", (), values)
    if roots:
        fix = "Set ansible_user to a plain user and no become, as the team will use the machines"
        return AcceptancePart("user", "unproven", f"the ranks ran as root on {', '.join(roots[:4])}", (fix,), values)
    return AcceptancePart("user", "pass", "all ranks ran as a plain user", (), values)


def judge_resume(record: RunRecord) -> AcceptancePart:
    """Judge a run in which something was killed: its record holds the proof of the resume."""
    proof = record.get("drill")
    values = {"run_id": record.get("run_id"), "drill": proof}
    if not proof:
        reason = f"run {record.get('run_id')} {record.get('outcome')}: {record.get('detail')}"
        return AcceptancePart("resume", "fail", "the run ended before a rank was killed", (reason,), values)
    if not proof.get("resumed") or record.get("outcome") != "succeeded":
        reason = str(proof.get("problem") or record.get("detail"))
        return AcceptancePart("resume", "fail", "the run did not resume", (reason,), values)
    summary = f"resumed in {proof['seconds_to_resume']} s with all {proof['world_size']} ranks"
    return AcceptancePart("resume", "pass", f"{summary}, {proof['steps_lost']} steps were repeated", (), values)
