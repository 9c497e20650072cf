# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance of a fleet as values (``accept.json``): parts with an outcome each, and the outcome of all. Pure.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .verdict import OUTCOMES, Outcome, exit_code, worst_outcome

SCHEMA = 1
PartOutcome = t.Literal["pass", "warn", "fail", "unproven", "not_applicable"]
Dict = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class AcceptancePart:
    """One test of the acceptance: what came of it in one line, why, and its figures."""

    name: str
    outcome: PartOutcome
    summary: str
    reasons: tuple[str, ...] = ()
    values: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> Dict:
        """Return the entry of accept.json."""
        head = {"name": self.name, "outcome": self.outcome, "summary": self.summary, "reasons": list(self.reasons)}
        return {**head, **self.values}


def overall_outcome(parts: t.Iterable[AcceptancePart]) -> Outcome:
    """Return the heaviest outcome of the parts that apply; without any it is ``unproven``."""
    return worst_outcome(part.outcome for part in parts if part.outcome in OUTCOMES)


def build_document(parts: t.Sequence[AcceptancePart], **values: t.Any) -> Dict:
    """Return accept.json: ``schema``, ``outcome``, ``exit_code``, the given values, and ``parts``."""
    outcome = overall_outcome(parts)
    head = {"schema": SCHEMA, "outcome": outcome, "exit_code": exit_code(outcome)}
    return {**head, **values, "parts": [part.to_dict() for part in parts]}


def judge_queue(first: t.Mapping[str, t.Any], second: t.Mapping[str, t.Any]) -> AcceptancePart:
    """Judge two gangs that were submitted together where only one fits; both are run records.

    One must run whole and to its end before the other starts; neither may hold a part of the room.
    """
    runs = sorted((first, second), key=lambda item: str(_last_attempt(item).get("started_at") or "~"))
    values = {"runs": [_run_times(item) for item in runs]}
    for item in runs:
        if item.get("outcome") != "succeeded":
            said = f"{item.get('run_id')} {item.get('outcome')}: {item.get('detail')}"
            return AcceptancePart("queue", "fail", "one of two gangs did not run to its end", (said,), values)
        size = item.get("world_size") or {}
        if size.get("seen") != size.get("asked"):
            said = f"{item.get('run_id')} saw {size.get('seen')} of {size.get('asked')} ranks"
            return AcceptancePart("queue", "fail", "a gang ran with a part of its ranks", (said,), values)
    ended, began = _last_attempt(runs[0]).get("ended_at"), _last_attempt(runs[1]).get("started_at")
    if not ended or not began:
        return AcceptancePart("queue", "unproven", "the records do not say when the gangs ran", (), values)
    if began < ended:
        fix = "Choose nodes and resources so that the queue's quota holds one gang and not two"
        return AcceptancePart("queue", "unproven", "both gangs ran at once: there was room for two", (fix,), values)
    return AcceptancePart(
        "queue", "pass", "the second gang waited whole until the first had ended, then ran", (), values
    )


def _last_attempt(record: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    attempts = record.get("attempts") or [{}]
    return t.cast("t.Mapping[str, t.Any]", attempts[-1])


def _run_times(record: t.Mapping[str, t.Any]) -> Dict:
    attempt = _last_attempt(record)
    return {"run_id": record.get("run_id"), "began": attempt.get("started_at"), "ended": attempt.get("ended_at")}


def judge_user_ids(ranks: t.Iterable[tuple[str, int]]) -> AcceptancePart:
    """Judge under which user ids the ranks ran: (node, user id) of each."""
    found = sorted(set(ranks))
    values = {"uids": [{"node": node, "uid": uid} for node, uid in found]}
    roots = [node for node, uid in found if uid == 0]
    if not found:
        return AcceptancePart("user", "unproven", "no rank told as whom it ran", (), values)
    if roots:
        fix = "Set ansible_user to a plain user and no become, as the team will use the machines"
        return AcceptancePart("user", "unproven", f"the ranks ran as root on {', '.join(roots[:4])}", (fix,), values)
    return AcceptancePart("user", "pass", "all ranks ran as a plain user", (), values)


def judge_resume(record: t.Mapping[str, t.Any]) -> AcceptancePart:
    """Judge a run in which something was killed: its record holds the proof of the resume."""
    proof = record.get("drill")
    values = {"run_id": record.get("run_id"), "drill": proof}
    if not proof:
        said = f"the run {record.get('outcome')}: {record.get('detail')}"
        return AcceptancePart("resume", "fail", "nothing was killed before the run ended", (said,), values)
    if not proof.get("resumed") or record.get("outcome") != "succeeded":
        reason = str(proof.get("problem") or record.get("detail"))
        return AcceptancePart("resume", "fail", "the run did not resume", (reason,), values)
    words = f"resumed in {proof['seconds_to_resume']} s with all {proof['world_size']} ranks"
    return AcceptancePart("resume", "pass", f"{words}, {proof['steps_lost']} steps were done twice", (), values)
