# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the bench on nodes of a cluster as a gang of pods, one pod a node.

The gang is built and followed as a training job is: an Indexed Job whose bench writes its result to the pod's log, or
an MPIJob of nccl-tests, whose table is in the log of mpirun's pod.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import tempfile
import time
import typing as t

from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.job import Job, parse_job
from ..._fabric.bench.plan import BenchStage
from ..._fabric.bench.result import BenchResult
from ..._kube.api.client import Client
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs.spec import EligibleNodes, KubePlan, set_owner
from ..._kube.objects.apply import apply
from ..training_job import source as code_source
from ..training_job.follower import RunOutcome
from ..training_job.kubernetes import network_preflight
from ..training_job.kubernetes import plan as kubernetes_plan
from ..training_job.kubernetes.cluster_facts import ClusterFacts, read_cluster_facts
from ..training_job.kubernetes.ending.last_lines import FoundEnd
from ..training_job.kubernetes.follower import ClusterFollower
from ..training_job.kubernetes.watches import ClusterWatches
from . import bench_group
from .bench_group import Bench, GroupRun

# Time to be admitted, scheduled and started, beside the test itself. The pods that gathered facts pulled the image.
_START_S = 120
# Beside the time of the bench, for its pods' own start and end.
_END_S = 5
_HOSTNAME = "kubernetes.io/hostname"
# What ``allreduce_bench.py --out -`` prints; a launcher may have put its own prefix before it.
_PIECE = re.compile(r"muster-bench ([0-9]+)/([0-9]+) (.*)")


@dataclasses.dataclass(frozen=True)
class UserJob:
    """The keys of the user's job that the tests take over: those that say in which image and where it runs.

    ``settings`` are image, interpreter, mounts, resources and GPU as the user wrote them; ``pull_secrets`` are the
    secret_refs of registries. Other secrets of the job are not given to a test.
    """

    settings: t.Mapping[str, object]
    env: t.Mapping[str, object]
    placement: t.Mapping[str, object]
    pull_secrets: tuple[t.Mapping[str, object], ...] = ()
    gpus_per_node: int = 0

    @classmethod
    def from_dict(cls, job: t.Mapping[str, t.Any]) -> UserJob:
        """Return the keys of a job as the user wrote it."""
        for key in ("env", "placement"):
            if not isinstance(job.get(key) or {}, dict):
                raise InputError(f"job.{key}", "must be a mapping")
        pulls = tuple(ref for ref in job.get("secret_refs", []) if ref.get("as") == "registry")
        for ref in pulls:
            if ref.get("from") != "kubernetes":
                raise InputError(
                    "job.secret_refs.as",
                    f"a fabric test pulls its image with a Secret that exists, and '{ref.get('name')}' is in none",
                    "Create it once with muster.training.kube_secret (type: kubernetes.io/dockerconfigjson) and name "
                    "it: {from: kubernetes, path: SECRET, as: registry}",
                )
        settings = {key: job[key] for key in ("image", "python", "mounts", "resources", "gpu") if key in job}
        if isinstance(job.get("mounts"), list):
            # A test of the network reads no files that services hold.
            settings["mounts"] = [
                item for item in job["mounts"] if not (isinstance(item, dict) and item.get("binding"))
            ]
        return cls(
            settings,
            job.get("env") or {},
            job.get("placement") or {},
            pulls,
            int(job.get("gpus_per_node") or 0),
        )


def leave_island_queue(job: Job, facts: ClusterFacts) -> tuple[Job, ClusterFacts]:
    """Return a test without its queue where that one chooses islands: it admits to islands that were found."""
    if not facts.by_queue:
        return job, facts
    placement = dataclasses.replace(job.placement, queue=None, priority=None)
    return dataclasses.replace(job, placement=placement), dataclasses.replace(facts, queue=None)


@dataclasses.dataclass(frozen=True)
class BenchGangs:
    """What all gangs of one verification share. ``hostnames``: node -> value of its hostname label."""

    client: Client
    namespace: str
    user_job: UserJob
    hostnames: t.Mapping[str, str]
    options: t.Mapping[str, object]

    def run(self, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench on ``group`` and return its result; all objects of the gang are deleted."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="muster-gang-") as name:
            folder = pathlib.Path(name)
            try:
                failure, ranks = self._run_gang(group, stage, bench, run_id, folder)
            except MusterError as exc:
                failure, ranks = str(exc), {}
            logs = {path.stem: path.read_text(errors="replace") for path in sorted(folder.glob("logs/*.log"))}
            events = bench_group.read_events(folder)
        rank_count = len(group) * stage.processes_per_node
        result, problem, notes = read_gang_result(logs, events, bench, rank_count, failure)
        silent = bench_group.find_silent_ranks(events)
        seconds = time.monotonic() - began
        return GroupRun(group, result, tuple(sorted(ranks)), rank_count, problem, logs, seconds, silent, notes)

    def plan(self, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str) -> KubePlan:
        """Return the bench as a job on exactly these nodes, placed by the cluster's own facts."""
        job = parse_job(build_gang_job(self.user_job, group, stage, bench, self.options))
        job, facts = leave_island_queue(job, read_cluster_facts(self.client, job, self.namespace))
        decision = kubernetes_plan.decide(job, self.namespace, facts, environment=bench.environment, fabric=False)
        if decision.problem:
            raise decision.problem
        source = code_source.read_source(job, bench_group.BENCH, bench_group.BENCH)
        plan = kubernetes_plan.build_plan(decision, source, run_id, "fabric", 1)
        hostnames = [self.hostnames[name] for name in group]
        return dataclasses.replace(plan, fleet=restrict_to_nodes(plan.fleet, hostnames))

    def _run_gang(
        self, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str, folder: pathlib.Path
    ) -> tuple[str, dict[int, str]]:
        """Submit, follow and delete a gang; return the problem (empty when it succeeded) and its ranks' nodes."""
        plan = self.plan(group, stage, bench, run_id)
        *supporting, main = kubernetes_plan.build_objects(plan)
        try:
            apply(self.client, supporting)
            live = t.cast(KubeObject, apply(self.client, [main]).objects()[0])
            apply(self.client, set_owner(supporting, live))
            progress = ProgressLines()
            sources = ClusterWatches(self.client, plan, live)
            follower = _GangFollower(plan.job, run_id, folder, sources, progress, lambda line: None, None)
            follower.test_s = stage.timeout_s + _END_S + (_START_S if bench.tool == "nccl_tests" else 0)
            outcome = follower.run()
        finally:
            network_preflight.delete_objects(self.client, [main, *supporting])
        attempt = follower.story.attempts[-1] if follower.story.attempts else None
        ranks = {int(rank): str(node) for rank, node in (attempt.ranks if attempt else {}).items()}
        if outcome.outcome == "succeeded":
            return "", ranks
        reason = f": {progress.lines[-1]}" if progress.lines and not ranks else ""
        return f"{outcome.detail}{reason}", ranks


class ProgressLines:
    """Keeps the follower's progress lines: the last one explains a gang that never started."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)

    def show(self, values: t.Mapping[str, object]) -> None:
        """Drop the values."""


class _GangFollower(ClusterFollower):
    """A follower that gives up a gang whose pods do not all run ``start_s`` after it was submitted.

    ``test_s`` is the time of the test itself, which begins when all of them run: a busy cluster starts pods late.
    """

    start_s = float(_START_S)
    test_s = float(_START_S)
    _submitted: float | None = None
    _running: float | None = None

    def _find_end(self) -> None:
        now = time.monotonic()
        self._submitted = now if self._submitted is None else self._submitted
        if self._running is None and self._all_started():
            self._running = now
        super()._find_end()
        if self._ending is not None:
            return
        if self._running is None and now > self._submitted + self.start_s:
            self._give_up(f"the test's pods were not all running after {self.start_s:g} s")
        elif self._running is not None and now > self._running + self.test_s:
            self._give_up(f"the test did not end within {self.test_s:g} s")

    def _all_started(self) -> bool:
        """Return whether all pods of the gang have started; mpirun has one of its own."""
        phases = [(pod.get("status") or {}).get("phase") for pod in self.pods.values()]
        wanted = self.job.nodes + (self.main["kind"] == "MPIJob")
        return len([phase for phase in phases if phase in ("Running", "Succeeded", "Failed")]) >= wanted

    def _give_up(self, detail: str) -> None:
        self._ending = FoundEnd(RunOutcome("failed", 124, "timeout", detail), quiet_s=0.0)


def build_gang_job(
    user_job: UserJob,
    group: tuple[str, ...],
    stage: BenchStage,
    bench: Bench,
    options: t.Mapping[str, object],
) -> dict[str, object]:
    """Return the job of a gang: the bench's program with the user's image, mounts and placement."""
    # A pod's log is the only output that outlives it: result and NCCL's lines go there.
    job = bench_group.build_job(options, group, stage, bench, out="-", env=user_job.env, nccl_logs=False)
    engine = "mpijob" if bench.tool == "nccl_tests" else "indexed_job"
    placement = {**user_job.placement, "backend": "kubernetes", "engine": engine, "allow_slow_network": True}
    # The nodes are named one by one, whatever island the last verdict put them in.
    placement.pop("island", None)
    # A Job's deadline begins when it is created, and its first pod may run long before the last one: the time to start
    # is not the test's. The follower ends a test that takes too long.
    restart = {**t.cast("dict[str, object]", job["restart"]), "wait_s": _START_S}
    job.update(restart=restart, timeout_s=int(stage.timeout_s) + _END_S + _START_S)
    secrets = list(user_job.pull_secrets)
    return {**job, **user_job.settings, "secret_refs": secrets, "placement": placement, "ttl_after_finished_s": 300}


def restrict_to_nodes(fleet: EligibleNodes, hostnames: t.Sequence[str]) -> EligibleNodes:
    """Return the fleet restricted to these nodes, with at most one pod on each."""
    expression = {"key": _HOSTNAME, "operator": "In", "values": list(hostnames)}
    return dataclasses.replace(fleet, expressions=(*fleet.expressions, expression), whole_node=True)


def read_gang_result(
    logs: t.Mapping[str, str],
    events: t.Sequence[t.Mapping[str, object]],
    bench: Bench,
    rank_count: int,
    failure: str,
) -> tuple[BenchResult | None, str, tuple[str, ...]]:
    """Return what a gang measured, by its pods' logs, why there is no result (else empty), and notes.

    :param logs: node -> what its pods printed; mpirun's pod prints what all ranks say.
    :param failure: how the gang failed, empty when it succeeded.
    """
    if bench.tool == "nccl_tests":
        result, problem, notes = bench_group.read_nccl_tests("".join(logs.values()), events, bench, rank_count, failure)
        return result, problem or ("" if result is not None else failure), notes
    result, problem = bench_group.parse_result(read_documents(logs))
    if result is not None and failure:
        # A result is written before the last ranks end: a rank that hung after it did not finish the test.
        result, problem = None, "not all ranks finished the test"
    return result, f"{problem} ({failure})" if problem and failure else failure or problem, ()


def read_documents(logs: t.Mapping[str, str]) -> list[str]:
    """Return the complete result documents in the logs; a document that lacks a piece is left out."""
    documents: list[str] = []
    for text in logs.values():
        pieces: dict[int, str] = {}
        count = 0
        for match in _PIECE.finditer(text):
            pieces[int(match.group(1))], count = match.group(3), int(match.group(2))
        if pieces and sorted(pieces) == list(range(1, count + 1)):
            documents.append("".join(pieces[number] for number in sorted(pieces)))
    return documents
