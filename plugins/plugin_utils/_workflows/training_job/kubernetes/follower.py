# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run on Kubernetes: one watch per kind, one log stream per pod, one queue for all of them.

The log of a pod carries what its ranks recorded as marked lines, so that following logs is following the run. Logs are
read while the pods live: an engine that restarts a gang deletes its pods, and their logs with them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
import typing as t

from .....module_utils._model.drill import Drill
from .....module_utils._model.errors import MusterError
from .....module_utils._model.job import Job
from .....module_utils._node import checkpoint_room
from ...._kube.api.kinds import Fields, KubeObject, ObjectMeta
from ...._kube.api.logs import LogPosition
from ...._kube.api.watch import WatchEvent
from ...._kube.jobs.spec import CONTAINER
from ...._kube.nodes.lost_pods import describe_pods, is_unready
from ...._kube.objects import events, status
from ...shared import run_record
from ...shared.parent_process import watch_parent
from ...shared.progress import Progress
from ..follower import Follower, RunOutcome
from ..movement import read_end
from .container_exits import ContainerExits
from .delete import is_terminating
from .ending.last_lines import FoundEnd, is_over
from .ending.pod_losses import PodLosses
from .ending.run_end import EndRules
from .force_delete import ForcedDeletions
from .pending import Hindrances, PendingCauses, SlowPulls, keeps_waiting
from .pod_logs import LineCounts, PodLogs
from .run_events import RunWarnings
from .timestamps import cluster_date, local_time
from .watches import ClusterWatches

_IDLE_S = 0.5
# So often deleted supporting objects of the run are looked for.
_RESTORE_S = 10.0
# For so many seconds events and log lines are processed before the run's limits are checked again.
_TURN_S = 0.2


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
        drill: Drill | None,
        stop_reason: t.Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(job, run_id, folder, progress, save, drill, stop_reason)
        was_cut = self.take_cut()
        self.sources = sources
        self.forced = ForcedDeletions(sources.client, progress)
        self.pods: dict[str, KubeObject] = {}
        self.nodes: dict[str, str] = {}
        self.read: dict[str, LogPosition] = {
            uid: (str(place["stamp"]), int(place["same"])) for uid, place in self.offsets.items() if "stamp" in place
        }
        self.logs = PodLogs(self.nodes, self.read, self.take_text, self._record_refusal, self._read_log, progress)
        self.logs.counts = LineCounts({uid: place.get("counts") for uid, place in self.offsets.items()})
        if was_cut:
            # A pod has one log for all: of what is read again, its printed lines are kept already.
            self.logs.printed = dict(self.read)
            self.read.clear()
        self.main: KubeObject = sources.main
        self._main_seen = False
        self.image_ids: dict[str, str] = {}
        self.admitted_at: float | None = None
        self._said_found: set[str] = set()
        self.warnings = RunWarnings(sources.plan, [mount.pvc for mount in job.mounts if mount.pvc])
        self.pending = PendingCauses(sources.plan.queue is not None, sources.client.transport.is_recovering)
        self.hindrances = Hindrances(job.placement.start_wait_s)
        self.pulls = SlowPulls(sources.client, sources.plan.namespace)
        self.exits = ContainerExits(self.main["kind"], job.nodes)
        self.rules = EndRules(job, self.exits, sources.deadline_passed)
        self._ending: FoundEnd | None = None
        self._listed = False
        # Creates deleted supporting objects of the run again.
        self.restore: t.Callable[[], None] = lambda: None
        self._restore_at = 0.0
        known, lone = self.kept_events(), job.nodes > 1 or job.timeout_s is None
        self.losses = PodLosses(self.nodes, self.record_event, self._cluster_date, progress, known, self.offsets, lone)

    def run(self) -> RunOutcome:
        """Follow until the run has ended and its logs are read."""
        is_abandoned = watch_parent()
        self.sources.start()
        try:
            while True:
                if is_abandoned():
                    raise MusterError(f"run {self.run_id} is no longer followed: ansible-playbook has ended")
                self._take_news()
                self._find_end()
                self._end_if_hindered()
                if self.pending.take_attempts(len(self.story.attempts)):
                    self.rules.take_attempt()
                    self.losses.take_attempt(self.story.attempts[-2] if len(self.story.attempts) > 1 else None)
                if self._ending and not self._must_wait(self._ending):
                    return self._finish(self._ending.outcome)
                self._say_ending()
                self._drill_if_due()
                self._force_delete()
                self.logs.reopen(self.sources, self.pods)
                self._report_once(self.pending.unexplained_suspension(self.main))
                self._report_once(next(filter(None, map(self.pulls.find, self.pods.values())), None))
                self._report()
        finally:
            self.sources.close()
            self.logs.flush()
            self._release_printed(ended=True)
            self._save_offsets()
            self._save(force=True)

    def state(self) -> dict[str, object]:
        """Return where the run is; a node counts while its pod runs."""
        phases = [pod.get("status", {}).get("phase") for pod in self.pods.values()]
        values = {**super().state(), "nodes": phases.count("Running"), "nodes_asked": self.job.nodes}
        if self.is_ending:
            return {**values, "waiting": "ending"}
        if self.pending.suspended:
            return {**values, "ranks": 0, "waiting": "queued"}
        # Between two attempts there are none, whatever ranks the last one had.
        return {**values, "ranks": self._count_ranks(), "waiting": events.describe_wait(self.pods.values())}

    @property
    def is_ending(self) -> bool:
        """Whether it is known how the run ends, and its pods or their last lines are waited for."""
        return self._ending is not None

    @property
    def is_between(self) -> bool:
        """Whether the run has begun and none of its ranks is running: its gang is to start again."""
        over = any(pod["status"].get("phase") == "Succeeded" for pod in self.pods.values())
        return bool(self.story.attempts) and not (self.is_ending or self.is_done or over or self._count_ranks())

    @property
    def is_done(self) -> bool:
        """Whether all ranks of the newest attempt of this start have ended well: its engine is to say so."""
        newest = self.story.attempts[-1] if self.story.attempts else None
        return newest is not None and newest.n >= self.story.base and newest.has_ended_well

    def _count_ranks(self) -> int:
        running = {pod["metadata"]["name"] for pod in self.pods.values() if pod["status"].get("phase") == "Running"}
        return self.story.ranks_running(running)

    def _is_seen(self) -> bool:
        """Return whether the run is placed, no log of it is waited for and its nodes answer."""
        away = self.logs.is_away(self.pods) or self.sources.client.transport.is_recovering()
        # A pod without probes is ready until its node is not.
        silent = any(is_unready(pod) for pod in self.pods.values() if pod["status"].get("phase") == "Running")
        return not self.pending.suspended and self.story.is_placed and not away and not silent

    def local_time_of(self, stamp: t.Any) -> float:
        """Return the time of something that the cluster has dated, by this controller's clock."""
        return local_time(stamp, self.sources.client.transport.stats.server_time())

    def _cluster_date(self, stamp: t.Any) -> float:
        return cluster_date(stamp, time.time(), self.sources.client.transport.stats.server_time())

    def ended_at(self) -> float | None:
        """Return when the run ended: by its engine's word, else when that was found or its last rank ended.

        How long its pods and its logs are waited for then does not count. An engine has whole seconds, which may be
        before the end of the last rank.
        """
        exits = [end.at for end in self.story.attempts[-1].exits.values()] if self.story.attempts else []
        if self.rules.engine_end(self.main, self.story) is None:
            return max([self._ending.at, *exits]) if self._ending else None
        at = self.local_time_of(status.end_time(self.main))
        return max([at, *(end for end in exits if end - at < 1.0)])

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
        outcome = self.rules.engine_end(self.main, self.story) or outcome
        gaps = self.logs.gaps(whole=outcome.outcome == "succeeded")
        for gap in gaps:
            fix = ". Run this command again: it reads on while the pods exist" if gap.is_end else ""
            what = f"{gap.detail}: what its ranks recorded there is missing from the record of the run"
            self.progress.say(f"warning: {what}{fix}")
            self.record_event("log_gap", **gap._asdict())
        return dataclasses.replace(outcome, detail="; ".join([outcome.detail, *(gap.detail for gap in gaps)]))

    def _say_ending(self) -> None:
        """Say once that the run ends, where its pods or their last lines are waited for longer than a moment."""
        if self._ending is None or not self._ending.is_slow():
            return
        left = describe_pods([pod for pod in self.pods.values() if not is_over(pod)])
        waits = f"waiting for {left} to end" if left else "reading the last lines of its logs"
        self.progress.say(f"run {self.run_id} is ending ({self._ending.outcome.detail}): {waits}")

    def _must_wait(self, ending: FoundEnd) -> bool:
        """Return whether something of a run that has ended is still to come: pods, lines, or why a node is silent."""
        if not self._listed:
            # Its pods, and with them their logs, are not known yet.
            return True
        alive = {uid: pod for uid, pod in self.pods.items() if not is_over(pod) and uid not in self.forced.forced}
        silent = any(pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName") for pod in alive.values())
        reading = self.sources.is_reading() or self.logs.is_away(self.pods)
        return ending.must_wait(reading, bool(alive), silent)

    def _take_item(self, source: str, value: t.Any) -> None:
        if source == "line":
            self.logs.take(*value)
            if self._ending:
                self._ending.take_line()
            return
        self.logs.flush()
        if source == "error":
            self._take_failure(*value)
        elif source == "end":
            self.logs.take_end(*value)
        elif source == "main" and value.type == "SYNCED":
            self._require_main()
        elif source == "pod" and value.type == "SYNCED":
            self._listed = True
        elif source == "event" and value.type != "SYNCED":
            self._take_warning(value)
        elif value.type != "SYNCED":
            takers = {"main": self._take_main, "pod": self._take_pod}
            takers.get(source, self._take_workload)(value)

    def _say_event(self, line: t.Mapping[str, t.Any]) -> None:
        super()._say_event(line)
        is_new = self.story.base == 1 and not self.story.attempts
        if is_new and (said := checkpoint_room.describe_found(line)) and said not in self._said_found:
            self._said_found.add(said)
            self.progress.say(said)

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

    def _take_warning(self, event: WatchEvent) -> None:
        self._report_once(self.warnings.take(event, self.pods, self.main))
        self.losses.take_silent_node(self.warnings.pod_of_silent_node(event, self.main))

    def _require_main(self) -> None:
        """End a run whose object was deleted before the first listing: no event will report that."""
        if not self._main_seen:
            self._end_by_deletion()

    def _end_by_deletion(self) -> None:
        self._find_engine_end()
        space = self.sources.plan.namespace
        gone = self.rules.deletion(self.main, self.story, is_terminating(self.sources.client, space))
        self._ending = self._ending or FoundEnd(gone, saves_s=self.job.checkpoints.grace_s)

    def _take_pod(self, event: WatchEvent) -> None:
        pod, uid = event.object, event.object["metadata"]["uid"]
        if event.type == "DELETED":
            self.pods.pop(uid, None)
            self.sources.container_ended(uid)
            self.losses.take_end(uid)
            return
        self.pods[uid] = pod
        for early in self.warnings.about(uid):
            self._report_once(early)
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            self.nodes[uid] = node
        told = self._ending or self.pending.suspended
        attempt = self.story.attempts[-1] if self.story.attempts and not told else None
        self.losses.take_pod(pod, attempt, self.forced.forced)
        statuses = pod.get("status", {}).get("containerStatuses") or []
        main: Fields = next((item for item in statuses if item["name"] == CONTAINER), {})
        if main.get("imageID"):
            self.image_ids[str(node)] = str(main["imageID"])
        self._take_container(pod, uid, main)

    def _take_container(self, pod: KubeObject, uid: str, main: Fields) -> None:
        now = main.get("state") or {}
        if ("running" in now or "terminated" in now) and f"log-{uid}" not in self.sources.threads:
            begun = (now.get("running") or now.get("terminated") or {}).get("startedAt")
            if not self.pending.suspended and not pod["metadata"].get("deletionTimestamp"):
                self.admitted_at = self.admitted_at or self.local_time_of(begun)
            self.sources.follow_log(pod, self.read.get(uid))
        if "terminated" in now:
            self.logs.container_ended(uid, str(now["terminated"].get("message") or ""))
            place = self.nodes.get(uid, "")
            if self.exits.is_new_kill(pod, main):
                self._record_kill(place, now["terminated"])
            self._record_lines(place, self.exits.of_container(pod, main, place, bool(self.story.attempts)))
            self._report_once(events.find_pod_problem(pod))
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

    def _record_kill(self, node: str, ended: Fields) -> None:
        """Record a container that was killed, at the end of the second that the cluster names: no rank will say so."""
        at = min(time.time(), self.local_time_of(ended.get("finishedAt")) + 0.999)
        self.record_event("container_killed", at, node=node, exit_code=ended.get("exitCode"), detail="OOMKilled")

    def _force_delete(self) -> None:
        """Force-delete the pods of lost nodes, so that the gang can start again."""
        for uid in self.forced.force_delete(self.pods.values()):
            self.sources.drop_log(uid)
            self.losses.take_forced(self.pods[uid])

    def _take_workload(self, event: WatchEvent) -> None:
        owners = event.object["metadata"].get("ownerReferences") or []
        mine = any(owner.get("uid") == self.main["metadata"].get("uid") for owner in owners)
        if event.type != "DELETED" and mine:
            cause = self.pending.workload(event.object)
            if cause is not None and cause.final and not (cause.never_fits and self.story.attempts):
                # Its pods are gone or never came, and no others will: also of a run that was under way.
                self._ending = self._ending or FoundEnd(RunOutcome("failed", 1, cause.code, cause.text))
            self._report_once(cause)

    def _record_refusal(self, node: str, line: t.Mapping[str, t.Any]) -> None:
        """Note that a pod did not start its program, and why: no rank of it will say so."""
        detail = self.rules.take_refusal(node, line)
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

    def _find_end(self) -> None:
        """Note how the run has ended, where it has, and since when its last lines are read."""
        self._find_engine_end()
        if self._ending is not None:
            return
        early = self.rules.own_end(self.main, self.story, self.admitted_at) or self._rule_outcome()
        if early is None:
            return
        # A rule of ours: what the ranks save and say as they are told to end is still read.
        self._ending = FoundEnd(early, saves_s=self.job.checkpoints.grace_s)
        meta = self.main["metadata"]
        with contextlib.suppress(MusterError):
            self.sources.client.delete(self.main, meta["name"], self.sources.plan.namespace, uid=meta["uid"])

    def _find_engine_end(self) -> None:
        outcome = None if self._ending else self.rules.engine_end(self.main, self.story)
        if outcome is not None:
            self._ending = FoundEnd(outcome, by_engine=True)

    def _drill_if_due(self) -> None:
        if self.drill is None or not self._is_drill_due(time.time()):
            return
        where, there = self._find_drilled(self.drill)
        if self.drill.target != "host" and len(there) > 1 and self.drill.rank is not None:
            self.drill_problem = (
                f"{len(there)} pods of the run are on {where}",
                f"Name another rank than {self.drill.rank}",
            )
            return
        at = self._cluster_date(None)
        there = there if self.drill.target == "host" else there[:1]
        killed = [str(meta["name"]) for meta in there if self._kill_pod(meta)]
        if killed:
            self._record_drill(at, str(where), f"killed {', '.join(killed)}")
        else:
            # It is tried again with the next news.
            self.drill_problem = f"no pod of the run was on {where}", "Name a node that runs a pod of it"

    def _find_drilled(self, drill: Drill) -> tuple[str | None, list[ObjectMeta]]:
        """Return the node that a drill names and the pods there; of a rank and its agent, its own pod alone."""
        ranks = self.story.attempts[-1].ranks if self.story.attempts else {}
        wanted = ranks.get(drill.rank) if drill.rank is not None else drill.node
        there = [self.pods[uid]["metadata"] for uid, node in self.nodes.items() if node == wanted and uid in self.pods]
        name = self.story.attempts[-1].pods.get(drill.rank) if drill.rank is not None and ranks else None
        # Ray's driver tells of all ranks: its own pod runs none of them.
        own = [meta for meta in there if meta["name"] == name and self.main["kind"] != "RayJob"]
        return wanted, own if own and drill.target != "host" else there

    def kill_rank(self, rank: int, node: str) -> float | None:
        """Delete the pod of a rank at once; the gang starts again in new pods."""
        name = self.story.attempts[-1].pods.get(rank)
        meta = next((pod["metadata"] for pod in self.pods.values() if pod["metadata"]["name"] == name), None)
        if meta is None:
            return None
        at = self._cluster_date(None)
        return at if self._kill_pod(meta) else None

    def _kill_pod(self, meta: ObjectMeta) -> bool:
        with contextlib.suppress(MusterError):
            space = str(meta["namespace"])
            return self.sources.client.delete("v1/Pod", str(meta["name"]), space, uid=str(meta["uid"]), grace_s=0)
        return False

    def _report_once(self, cause: events.StartProblem | None) -> None:
        """Report what keeps the run from starting, each cause once; a final cause ends a run that never started."""
        if cause is None:
            return
        self.rules.take_problem(cause)
        if cause.misses_object and time.monotonic() > self._restore_at:
            self._restore_at = time.monotonic() + _RESTORE_S
            self.restore()
        self.hindrances.take(cause)
        if not self.story.attempts and self._ending is None and self.pending.is_final(cause):
            self._ending = FoundEnd(RunOutcome("failed", 1, cause.code, cause.text), quiet_s=0.0)
        if self.pending.is_new(cause):
            self.progress.say(cause.text)
            self.record_event("cluster", detail=cause.text)

    def _end_if_hindered(self) -> None:
        """End a run whose pods were kept from starting for too long, at its first start or at a later one."""
        begun, queued = bool(self.story.attempts), self.pending.suspended
        cause = self.hindrances.overdue(lambda item: not queued and keeps_waiting(item, self.pods, begun))
        if cause is not None and self._ending is None:
            detail = self.hindrances.describe(cause)
            self._ending = FoundEnd(RunOutcome("failed", 1, cause.code, detail), quiet_s=0.0)

    def _read_log(self, node: str) -> str:
        return read_end(self.folder / run_record.log_file(node))

    def _save_offsets(self) -> None:
        self.offsets = {
            uid: {
                "stamp": stamp,
                "same": same,
                "node": self.losses.node_of(uid),
                "counts": self.logs.counts.saved(uid),
            }
            for uid, (stamp, same) in self.read.items()
        }
        self.write_offsets()
