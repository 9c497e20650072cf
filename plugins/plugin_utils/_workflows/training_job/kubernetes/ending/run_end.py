# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run on Kubernetes ended: by its engine's word, by the job's own limits, or by a deletion of its object."""

from __future__ import annotations

import time
import typing as t

from ......module_utils._model.job import Job
from ......module_utils._model.run_attempt import FOLLOWING_CODES, RankExit
from ......module_utils._model.run_history import RunHistory, parse_time
from ......module_utils._secrets.scrubber import scrub
from ....._hosts import log_follow
from ....._kube.api.kinds import KubeObject, title
from ....._kube.objects import events, status
from ...follower import RunOutcome
from ..container_exits import ContainerExits
from ..delete import is_cancelled
from .crash_budget import CrashBudget

# The engine's own deadline comes first: it says in the cluster why the job ended.
_OWN_DEADLINE_S = 10.0
Line = t.Mapping[str, t.Any]


class _Refusal(t.NamedTuple):
    """Why a pod did not start its program. ``is_reason``: it does not follow from what happened to another pod."""

    at: float
    attempt: object
    is_reason: bool
    outcome: RunOutcome


class EndRules:
    """Judges a run by its object and its history. ``late``: whether the gang's Job ran out of time."""

    def __init__(self, job: Job, exits: ContainerExits, late: t.Callable[[], bool]) -> None:
        self.job, self.exits, self._late = job, exits, late
        self._refusal: _Refusal | None = None
        self._problem: events.StartProblem | None = None
        self._crashes = CrashBudget(job.restart.max_crashes)

    def take_refusal(self, node: str, line: Line) -> str:
        """Note that a pod did not start its program, which no rank of it will say; return why."""
        detail, code = scrub(str(line.get("detail") or "")), line.get("exit_code")
        exit_code = code if isinstance(code, int) else 1
        outcome = RunOutcome("failed", exit_code, "crash", f"{node}: {detail}", explained=True)
        made = _Refusal(
            parse_time(line.get("at")) or log_follow.now(), line.get("attempt"), code not in FOLLOWING_CODES, outcome
        )
        before = self._refusal
        if made.is_reason or before is None or not before.is_reason or before.attempt != made.attempt:
            self._refusal = made
        return detail

    def take_problem(self, problem: events.StartProblem) -> None:
        """Note what kept a container from starting: the engine's own reason does not name it."""
        if problem.code in ("container", "image", "volume", "admission"):
            self._problem = problem

    def take_attempt(self) -> None:
        """Note that an attempt has begun: what kept its containers from starting is over."""
        self._problem = None

    def engine_end(self, main: KubeObject, story: RunHistory) -> RunOutcome | None:
        """Return how the run ended by its engine's word, None while it runs."""
        now = status.read_state(main)
        if now.phase == "done":
            return RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0")
        return self._failure(now.reason, story) if now.phase == "failed" else None

    def own_end(self, main: KubeObject, story: RunHistory, admitted_at: float | None) -> RunOutcome | None:
        """Return the end by a rule that not every engine knows, None where the run may go on."""
        found = self._fatal_exit(story) or self._timeout(admitted_at, story) or self._refused_worker(main, story)
        found = found or self._lost_budget(main, story) or self._crash_budget(main, story)
        return found or self._start_failure(story)

    def deletion(self, main: KubeObject, story: RunHistory, with_namespace: bool = False) -> RunOutcome:
        """Return the end of a run whose object was deleted before its engine said an end.

        :param with_namespace: whether its namespace is being deleted.
        """
        meta = main["metadata"]
        name = title(main["kind"], meta.get("namespace"), meta.get("name"))
        cancelled = bool(story.attempts and story.attempts[-1].cancelled_at is not None)
        if cancelled or is_cancelled(main):
            return RunOutcome("cancelled", 143, "cancelled", f"the run was cancelled: {name} was deleted")
        how = f"with the namespace {meta.get('namespace')}" if with_namespace else "and not by cancel"
        return RunOutcome("failed", 1, "deleted", f"{name} was deleted, {how}")

    def _fatal_exit(self, story: RunHistory) -> RunOutcome | None:
        """Return the end of a run by an exit code that must not be repeated; not every engine knows exit codes."""
        attempt = story.attempts[-1] if story.attempts else None
        fatal = self.job.restart.fatal_exit_codes
        found = [item for item in attempt.exits.values() if item[1] in fatal] if attempt else []
        if not found:
            return None
        end = min(found)
        detail = f"a rank on {end.node} exited with code {end.exit_code}"
        return RunOutcome("failed", end.exit_code, "fatal_exit_code", detail, end.node)

    def _refused_worker(self, main: KubeObject, story: RunHistory) -> RunOutcome | None:
        """Return the end of an MPIJob whose worker refused: mpirun waits for the pod, which nothing replaces."""
        refusal = self._newest_refusal(story)
        return refusal.outcome if main["kind"] == "MPIJob" and refusal is not None and refusal.is_reason else None

    def _newest_refusal(self, story: RunHistory) -> _Refusal | None:
        """Return why a pod of the newest attempt did not start its program, None where all did."""
        last = max((item.started_at for item in story.attempts), default=0.0)
        return self._refusal if self._refusal is not None and self._refusal.at > last else None

    def _timeout(self, since: float | None, story: RunHistory) -> RunOutcome | None:
        """Return the end of a run that exceeded timeout_s. An engine's own deadline starts again with every restart."""
        limit = self.job.timeout_s
        if limit is None or since is None or time.time() <= since + limit + _OWN_DEADLINE_S:
            return None
        return RunOutcome("failed", 124, "timeout", f"timeout_s ({limit} s) has passed {_where_it_stood(story)}")

    def _lost_budget(self, main: KubeObject, story: RunHistory) -> RunOutcome | None:
        """Return the end of a run that lost too many nodes, by its engine's word or by the cluster's."""
        counts = main.get("status") or {}
        by_engine = int(counts.get("restarts") or 0) - int(counts.get("restartsCountTowardsMax") or 0)
        lost = max(by_engine, story.lost_nodes)
        if not self.job.lost_budget or lost <= self.job.lost_budget:
            return None
        node = next((item.failed_node for item in reversed(story.attempts) if item.failed_node), None)
        budget = f"restart.max_lost_nodes ({self.job.restart.max_lost_nodes}) is exceeded after {lost} lost nodes"
        return RunOutcome("lost", 1, "node_lost", f"{budget}{f', the last is {node}' if node else ''}", node)

    def _crash_budget(self, main: KubeObject, story: RunHistory) -> RunOutcome | None:
        """Return the end of a run that crashed too often, which its engine does not count alone."""
        hindered = self._problem is not None or self._refusal is not None
        if not self._crashes.is_exceeded(main, story, hindered=hindered):
            return None
        reason = f"restart.max_crashes ({self.job.restart.max_crashes}) is exceeded"
        crashed = next((item for item in reversed(story.attempts) if item.cause == "crash"), None)
        if crashed is not None and crashed.first_failure is not None and crashed is not story.attempts[-1]:
            # The engine has started the gang once more.
            killed = self._out_of_memory(reason, crashed.started_at) if crashed.killed else None
            return killed or self._crash(crashed.first_failure, reason)
        return self._failure(reason, story)

    def _start_failure(self, story: RunHistory) -> RunOutcome | None:
        why = "" if story.attempts else self.exits.start_failure()
        return RunOutcome("failed", 1, "crash", why) if why else None

    def _failure(self, reason: str, story: RunHistory) -> RunOutcome:
        """Return the end of a run of which its engine says that it failed: by what is known best of it."""
        attempt = story.attempts[-1] if story.attempts else None
        failure = attempt.first_failure if attempt else None
        late = "Deadline" in reason or self._late()
        began = max((item.started_at for item in story.attempts), default=0.0)
        refused = self._refused_start(story, is_explained=failure is not None or late)
        outcome = refused or self._out_of_memory(reason, began)
        if outcome:
            return outcome
        if late:
            # Ranks that were told to end for it say so as they end.
            passed = f"timeout_s ({self.job.timeout_s} s) has passed {_where_it_stood(story)} ({reason})"
            return RunOutcome("failed", 124, "timeout", passed)
        lost = attempt.failed_node if attempt and attempt.cause != "crash" else None
        if lost and (failure is None or (attempt and attempt.cause == "node_lost")):
            return RunOutcome("lost", 1, "node_lost", f"{lost} was lost: {reason}", lost)
        if failure is None:
            problem = self._problem
            return RunOutcome("failed", 1, problem.code if problem else "crash", _with_problem(reason, problem))
        return self._crash(failure, reason)

    def _refused_start(self, story: RunHistory, *, is_explained: bool) -> RunOutcome | None:
        """Return the end of a run of which a pod did not start its program.

        The refusal of pods that were stopped while they waited for others has its reason elsewhere: it
        counts where nothing else explains the end.
        """
        refusal = self._newest_refusal(story)
        return refusal.outcome if refusal is not None and (refusal.is_reason or not is_explained) else None

    def _out_of_memory(self, reason: str, began: float) -> RunOutcome | None:
        """Return the end of a run by an attempt, which ``began`` then, that the kernel killed for its memory."""
        killed = self.exits.killed_since(began)
        return RunOutcome("failed", 137, "out_of_memory", f"{killed[1]} ({reason})", killed[0]) if killed else None

    def _crash(self, failure: RankExit, reason: str) -> RunOutcome:
        code, node = failure.exit_code, failure.node
        cause = "fatal_exit_code" if code in self.job.restart.fatal_exit_codes else "crash"
        return RunOutcome("failed", code, cause, f"a rank on {node} exited with code {code} ({reason})", node)


def _where_it_stood(story: RunHistory) -> str:
    step = story.last.get("step")
    return "before the first step" if step is None else f"at step {int(step)}"


def _with_problem(reason: str, problem: events.StartProblem | None) -> str:
    return reason if problem is None else f"{problem.text} ({reason})"
