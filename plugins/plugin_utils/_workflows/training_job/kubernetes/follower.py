# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run on Kubernetes: one watch per kind, one log stream per pod, one queue for all of them.

The log of a pod carries what its ranks recorded as marked lines, so that following logs is following the run. Logs are
read while the pods live: an engine that restarts a gang deletes its pods, and their logs with them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
import typing as t

from .....module_utils._model import drill as drills
from .....module_utils._model.errors import MusterError
from .....module_utils._model.job import Job
from .....module_utils._model.run_history import parse_time
from .....module_utils._node import files
from .....module_utils._secrets.scrubber import scrub
from ...._hosts import log_follow
from ...._kube.api.kinds import KubeObject
from ...._kube.api.logs import LogPosition
from ...._kube.api.watch import WatchEvent
from ...._kube.jobs.spec import CONTAINER
from ...._kube.objects import events, status
from ...shared import run_record
from ...shared.progress import Progress
from ..follower import Follower, RunOutcome, read_tail
from .container_exits import ContainerExits
from .force_delete import ForcedDeletions
from .pending import PendingCauses
from .pod_logs import PodLogs
from .run_events import RunWarnings
from .timestamps import local_time
from .watches import ClusterWatches

_IDLE_S = 0.5
# For so many seconds events and log lines are processed before the run's limits are checked again.
_TURN_S = 0.2
_DRAIN_S = 20.0
# The engine's own deadline comes first: it says in the cluster why the job ended.
_OWN_DEADLINE_S = 10.0


class ClusterFollower(Follower):
    """A follower whose news come from a cluster instead of from nodes."""

    def __init__(
        self,
        job: Job,
        run_id: str,
        folder: pathlib.Path,
        sources: ClusterWatches,
        progress: Progress,
        save: t.Callable[[Follower], None],
        drill: drills.Drill | None,
        stop_reason: t.Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(job, run_id, folder, progress, save, drill, stop_reason)
        self.sources = sources
        self.forced = ForcedDeletions(sources.client, progress)
        self.pods: dict[str, KubeObject] = {}
        self.nodes: dict[str, str] = {}
        self.read: dict[str, LogPosition] = {
            uid: (str(place["stamp"]), int(place["same"])) for uid, place in self.offsets.items() if "stamp" in place
        }
        self.logs = PodLogs(self.nodes, self.read, self._write, self._record_refusal, self._read_log, progress)
        self.main: KubeObject = sources.main
        self._main_seen = False
        self.lost_pods: set[str] = set()
        self.image_ids: dict[str, str] = {}
        self.admitted_at: float | None = None
        self.warnings = RunWarnings(sources.plan, [mount.pvc for mount in job.mounts if mount.pvc])
        self.pending = PendingCauses(sources.plan.queue is not None, sources.client.transport.is_recovering)
        self.exits = ContainerExits(self.main["kind"], job.nodes)
        self._ending: tuple[RunOutcome, float] | None = None
        self._is_engine_done = False
        self.refusal: RunOutcome | None = None
        self.refused_at = 0.0

    def run(self) -> RunOutcome:
        """Follow until the run has ended and its logs are read."""
        parent = os.getppid()
        self.sources.start()
        try:
            while True:
                if os.getppid() != parent:
                    raise MusterError(f"run {self.run_id} is no longer followed: ansible-playbook has ended")
                self._take_news()
                self._ending = self._ending or self._find_end()
                self.pending.take_attempts(len(self.story.attempts))
                if self._ending and (not self.sources.is_reading() or time.monotonic() > self._ending[1]):
                    return self._finish(self._ending[0])
                self._drill_if_due()
                self._force_delete()
                if not self._ending:
                    self.logs.reopen(self.sources, self.pods)
                self._report_once(self.pending.unexplained_suspension(self.main))
                self._report()
        finally:
            self.sources.close()
            self.logs.flush()
            self._save_offsets()
            self._save(force=True)

    def state(self) -> dict[str, object]:
        """Return where the run is; a node counts while its pod runs."""
        running = [pod for pod in self.pods.values() if pod.get("status", {}).get("phase") == "Running"]
        values = {**super().state(), "nodes": len(running), "nodes_asked": self.job.nodes}
        return {**values, "ranks": 0, "waiting": "queued"} if self.pending.suspended else values

    def local_time_of(self, stamp: t.Any) -> float:
        """Return the time of something that the cluster has dated, by this controller's clock."""
        return local_time(stamp, self.sources.client.transport.stats.server_time())

    def _take_news(self) -> None:
        item = self.sources.next_item(_IDLE_S)
        if item is None:
            return
        # What is there already is taken in at once: a burst of lines is saved once. One that never ends must not keep
        # the run's limits from being looked at.
        end = time.monotonic() + _TURN_S
        while item is not None:
            self._take_item(*item)
            item = self.sources.next_item(0.0) if time.monotonic() < end else None
        self.logs.flush()
        self._save_offsets()
        self._save()

    def _finish(self, outcome: RunOutcome) -> RunOutcome:
        """Take in all items that are left, and return how the run ended."""
        self.sources.close()
        while (item := self.sources.next_item(0.0)) is not None:
            # A watch that breaks as it is closed says nothing of the run.
            if item[0] != "error" or item[1][0].startswith("log-"):
                self._take_item(*item)
        self.logs.flush()
        self.logs.write_termination_message()
        told = self._engine_end() if self._is_engine_done else None
        return told[0] if told else outcome

    def _take_item(self, source: str, value: t.Any) -> None:
        if source == "line":
            self.logs.take(*value)
            return
        self.logs.flush()
        if source == "error":
            self._take_failure(*value)
        elif source == "end":
            self.logs.take_end(value)
        elif source == "main" and value.type == "SYNCED":
            self._require_main()
        elif source == "event" and value.type != "SYNCED":
            self._report_once(self.warnings.take(value, self.pods, self.main))
        elif value.type != "SYNCED":
            takers = {"main": self._take_main, "pod": self._take_pod}
            takers.get(source, self._take_workload)(value)

    def _take_main(self, event: WatchEvent) -> None:
        if event.object["metadata"].get("uid") != self.sources.main["metadata"].get("uid"):
            return
        self.main, self._main_seen = event.object, True
        if event.type == "DELETED":
            self._end_by_deletion()
        elif self.pending.take_suspension(self.main) and (self.admitted_at is not None or self.story.is_placed):
            # Its pods go, and with them its time: the engine's own limit begins anew with the next ones, too.
            self.admitted_at = None
            self.pending.forget()
            self.exits.forget()
            self.record_event("set_back", cause=self.pending.why, detail=status.read_state(self.main).reason)
            self.progress.say(f"the run was {self.pending.why}: it is queued again")

    def _require_main(self) -> None:
        """End a run whose object was deleted before the first listing: no event will report that."""
        if not self._main_seen:
            self._end_by_deletion()

    def _end_by_deletion(self) -> None:
        gone = RunOutcome("cancelled", 143, "cancelled", f"the {self.main['kind']} was deleted")
        self._ending = self._ending or self._engine_end() or (gone, self._save_deadline())

    def _take_pod(self, event: WatchEvent) -> None:
        pod, uid = event.object, event.object["metadata"]["uid"]
        if event.type == "DELETED":
            self._take_pod_deletion(pod)
            self.pods.pop(uid, None)
            return
        self.pods[uid] = pod
        for early in self.warnings.about(uid):
            self._report_once(early)
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            self.nodes[uid] = node
        self._check_disruption(pod)
        statuses = pod.get("status", {}).get("containerStatuses") or []
        main = next((item for item in statuses if item["name"] == CONTAINER), None)
        now = (main or {}).get("state") or {}
        if main and main.get("imageID"):
            self.image_ids[str(node)] = str(main["imageID"])
        if ("running" in now or "terminated" in now) and f"log-{uid}" not in self.sources.threads:
            begun = (now.get("running") or now.get("terminated") or {}).get("startedAt")
            if not self.pending.suspended and not pod["metadata"].get("deletionTimestamp"):
                self.admitted_at = self.admitted_at or self.local_time_of(begun)
            self.sources.follow_log(pod, self.read.get(uid))
        if "terminated" in now:
            self.logs.container_ended(uid, str(now["terminated"].get("message") or ""))
            place = self.nodes.get(uid, "")
            self._record_lines(place, self.exits.of_container(pod, main or {}, place, bool(self.story.attempts)))
            self.sources.container_ended(uid)
        elif "running" in now:
            return
        else:
            cause = events.find_pod_problem(pod)
            self._report_once(cause)
            if cause is not None and cause.code == "container":
                words = self.exits.before_any_rank(pod, cause.line, bool(self.story.attempts))
                self._record_lines(self.nodes.get(uid, ""), words)

    def _record_lines(self, node: str, words: t.Iterable[str]) -> None:
        """Say and record what no rank says: it went with its recorder, or never began."""
        for line in words:
            self.progress.say(line)
            self.record_event("cluster", node=node, detail=line)

    def _check_disruption(self, pod: KubeObject) -> None:
        """Note a pod that its node or the scheduler took away: that is a lost node, no crash."""
        uid = pod["metadata"]["uid"]
        conditions = status.conditions(pod)
        taken = conditions.get("DisruptionTarget")
        if taken and taken.get("status") == "True" and uid not in self.lost_pods:
            self.lost_pods.add(uid)
            node = self.nodes.get(uid) or pod["metadata"]["name"]
            self.record_event("node_lost", node=node, detail=f"{taken.get('reason')}: {taken.get('message')}")
            self.progress.say(f"{node}: {pod['metadata']['name']} was evicted: {taken.get('reason')}")

    def _take_pod_deletion(self, pod: KubeObject) -> None:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self.lost_pods.add(pod["metadata"]["uid"])

    def _force_delete(self) -> None:
        """Force-delete the pods of lost nodes, so that the gang can start again."""
        for uid in self.forced.force_delete(self.pods.values()):
            self.sources.drop_log(uid)
            node, name = self.nodes.get(uid, ""), self.pods[uid]["metadata"]["name"]
            if uid not in self.lost_pods:
                self.lost_pods.add(uid)
                self.record_event("node_lost", node=node or name, detail=f"the node of {name} does not answer")

    def _take_workload(self, event: WatchEvent) -> None:
        owners = event.object["metadata"].get("ownerReferences") or []
        mine = any(owner.get("uid") == self.main["metadata"].get("uid") for owner in owners)
        if event.type != "DELETED" and mine:
            cause = self.pending.workload(event.object)
            if cause is not None and cause.final:
                # Its pods are gone or never came, and no others will: also of a run that was under way.
                given_up = RunOutcome("failed", 1, cause.code, cause.text)
                self._ending = self._ending or (given_up, self._drain_deadline())
            self._report_once(cause)

    def _record_refusal(self, node: str, line: t.Mapping[str, t.Any]) -> None:
        """Note that a pod did not start its program, and why: no rank of it will say so."""
        detail = scrub(str(line.get("detail") or ""))
        code = line.get("exit_code")
        self.refusal = RunOutcome("failed", code if isinstance(code, int) else 1, "crash", f"{node}: {detail}")
        self.refused_at = parse_time(line.get("at")) or log_follow.now()
        self.progress.say(f"{node}: the pod did not start its program: {detail}")

    def _take_failure(self, name: str, exc: Exception) -> None:
        if name in ("event", "workload") and isinstance(exc, MusterError):
            if name == "workload":
                self.pending.take_unreadable()
            return
        if name.startswith("log-") and isinstance(exc, MusterError):
            self.logs.take_failure(name.removeprefix("log-"), exc)
            return
        raise exc

    def _find_end(self) -> tuple[RunOutcome, float] | None:
        found = self._engine_end()
        if found:
            return found
        early = (
            self._fatal_exit()
            or self._timeout()
            or self._rule_outcome()
            or self._lost_budget()
            or self._start_failure()
        )
        if early is None:
            return None
        # A rule of ours: what the ranks save and say as they are told to end is still read.
        meta = self.main["metadata"]
        with contextlib.suppress(MusterError):
            self.sources.client.delete(self.main, meta["name"], self.sources.plan.namespace, uid=meta["uid"])
        return early, self._save_deadline()

    def _lost_budget(self) -> RunOutcome | None:
        if not self.job.lost_budget or self._count_lost_restarts() <= self.job.lost_budget:
            return None
        lost = self._count_lost_restarts()
        return RunOutcome("lost", 1, "node_lost", f"restart.max_lost_nodes is exceeded after {lost} lost nodes")

    def _start_failure(self) -> RunOutcome | None:
        why = "" if self.story.attempts else self.exits.start_failure()
        return RunOutcome("failed", 1, "crash", why) if why else None

    def _engine_end(self) -> tuple[RunOutcome, float] | None:
        now = status.read_state(self.main)
        self._is_engine_done = now.phase in ("done", "failed")
        if now.phase == "done":
            return RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0"), self._drain_deadline()
        return (self._failure_outcome(now.reason), self._drain_deadline()) if now.phase == "failed" else None

    def _fatal_exit(self) -> RunOutcome | None:
        """Return the end of a run by an exit code that must not be repeated; not every engine knows exit codes."""
        attempt = self.story.attempts[-1] if self.story.attempts else None
        found = (
            [item for item in attempt.exits.values() if item[1] in self.job.restart.fatal_exit_codes] if attempt else []
        )
        if not found:
            return None
        _unused, code, node = min(found)
        return RunOutcome("failed", code, "fatal_exit_code", f"a rank on {node} exited with code {code}", node)

    def _timeout(self) -> RunOutcome | None:
        """Return the end of a run that exceeded timeout_s. An engine's own deadline starts again with every restart."""
        limit, since = self.job.timeout_s, self.admitted_at
        if limit is None or since is None or time.time() <= since + limit + _OWN_DEADLINE_S:
            return None
        return RunOutcome("failed", 124, "timeout", f"timeout_s ({limit} s) has passed")

    def _failure_outcome(self, reason: str) -> RunOutcome:
        last = max((attempt.started_at for attempt in self.story.attempts), default=0.0)
        if self.refusal is not None and self.refused_at > last:
            return self.refusal
        killed = self.exits.killed_since(last)
        if killed:
            return RunOutcome("failed", 137, "out_of_memory", f"{killed[1]} ({reason})", killed[0])
        if "Deadline" in reason or self.sources.deadline_passed():
            # Ranks that were told to end for it say so as they end.
            return RunOutcome("failed", 124, "timeout", f"timeout_s ({self.job.timeout_s} s) has passed ({reason})")
        attempt = self.story.attempts[-1] if self.story.attempts else None
        failure = attempt.first_failure if attempt else None
        if failure is None:
            lost = attempt.fault[1] if attempt and attempt.fault else None
            if lost:
                return RunOutcome("lost", 1, "node_lost", f"{lost} was lost: {reason}", lost)
            return RunOutcome("failed", 1, "crash", reason)
        code, node = failure.exit_code, failure.node
        cause = "fatal_exit_code" if code in self.job.restart.fatal_exit_codes else "crash"
        return RunOutcome("failed", code, cause, f"a rank on {node} exited with code {code} ({reason})", node)

    def _count_lost_restarts(self) -> int:
        """Return how often the engine restarted the gang for another reason than its program."""
        status = self.main.get("status") or {}
        return int(status.get("restarts") or 0) - int(status.get("restartsCountTowardsMax") or 0)

    def _drill_if_due(self) -> None:
        if not self.drill or self.drilled_at is not None or not drills.is_due(self.drill, self.story, time.time()):
            return
        ranks = self.story.attempts[-1].ranks if self.story.attempts else {}
        wanted = ranks.get(self.drill.rank) if self.drill.rank is not None else self.drill.node
        there = [self.pods[uid]["metadata"] for uid, node in self.nodes.items() if node == wanted and uid in self.pods]
        if not there:
            return
        self.drilled_at = time.time()
        self.record_event("drill", self.drilled_at, node=wanted, detail=f"killed {self.drill.target}")
        for meta in there if self.drill.target == "host" else there[:1]:
            self.sources.client.delete("v1/Pod", meta["name"], meta["namespace"], uid=meta["uid"], grace_s=0)
            self.progress.say(f"drill: killed {meta['name']} on {wanted} at step {int(self.story.last.get('step', 0))}")

    def _report_once(self, cause: events.StartProblem | None) -> None:
        """Report what keeps the run from starting, each cause once; a final cause ends a run that never started."""
        if cause is None:
            return
        if not self.story.attempts and self._ending is None and self.pending.is_final(cause):
            self._ending = RunOutcome("failed", 1, cause.code, cause.text), time.monotonic()
        if self.pending.is_new(cause):
            self.progress.say(cause.text)
            self.record_event("cluster", detail=cause.text)

    def _drain_deadline(self) -> float:
        return time.monotonic() + _DRAIN_S

    def _save_deadline(self) -> float:
        """Return until when logs of stopped ranks are read: they may save for as long as the job allows."""
        return self._drain_deadline() + self.job.checkpoints.grace_s

    def _read_log(self, node: str) -> str:
        return read_tail(self.folder / run_record.log_file(node))

    def _save_offsets(self) -> None:
        self.offsets = {uid: {"stamp": stamp, "same": same} for uid, (stamp, same) in self.read.items()}
        files.write_json(self.folder / "offsets.json", self.offsets)
