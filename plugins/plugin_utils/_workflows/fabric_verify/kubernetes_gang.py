# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running one group of a cluster's nodes through the bench: a short gang of pods, one on each of these nodes.

The gang is an Indexed Job of the builders that jobs use, and is followed as a job is; its result comes in its log.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import tempfile
import time
import typing as t

from ....module_utils._model.errors import MusterError
from ....module_utils._model.job import Job, parse_job
from ..._fabric.bench.plan import Stage
from ..._hosts import log_follow
from ..._kube.api.client import Client
from ..._kube.jobs.spec import Fleet, KubePlan, Object, owned
from ..._kube.objects.apply import apply
from ..training_job.follower import Outcome
from ..training_job.hosts import plan as hosts_plan
from ..training_job.kubernetes import network_preflight
from ..training_job.kubernetes import plan as kubernetes_plan
from ..training_job.kubernetes.follower import ClusterFollower
from ..training_job.kubernetes.watches import Sources
from . import bench_group
from .bench_group import Bench, GroupRun

Dict = dict[str, t.Any]
# Beside what a test takes: to be admitted, scheduled and started. The pods that asked for facts have pulled the image.
_START_S = 120
_HOSTNAME = "kubernetes.io/hostname"
# What ``allreduce_bench.py --out -`` prints; a launcher may have put its own prefix before it.
_PIECE = re.compile(r"muster-bench ([0-9]+)/([0-9]+) (.*)")
# Keys of a job that say with what it runs, not what it runs.
KEPT = ("image", "placement", "python", "env", "mounts", "resources", "gpu", "secret_refs")


@dataclasses.dataclass(frozen=True)
class Gangs:
    """What all gangs of one verification share. ``given``: keys of the user's job. ``hostnames``: node -> its label."""

    client: Client
    namespace: str
    given: Dict
    hostnames: t.Mapping[str, str]
    options: t.Mapping[str, t.Any]

    def run(self, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench on ``group`` and return what it showed; nothing of it stays in the cluster."""
        began = time.monotonic()
        asked = len(group) * stage.processes_per_node
        with tempfile.TemporaryDirectory(prefix="muster-gang-") as name:
            folder = pathlib.Path(name)
            try:
                problem, ranks = self._go(group, stage, bench, run_id, folder)
            except MusterError as exc:
                problem, ranks = str(exc), {}
            logs = {place.stem: place.read_text(errors="replace") for place in sorted(folder.glob("logs/*.log"))}
            told = folder / "events.jsonl"
            events = list(log_follow.parse_json_lines(told.read_text(errors="replace"))) if told.exists() else []
        result, trouble = bench_group.parse(documents(logs))
        if result is not None and problem:
            # A result is written before the last ranks end: one that hung then did not take part to the end.
            result, trouble = None, "the test did not end well"
        said = f"{trouble} ({problem})" if trouble and problem else problem or trouble
        silent = bench_group.silent(events)
        spent = time.monotonic() - began
        return GroupRun(group, result, tuple(sorted(ranks)), asked, said, logs, spent, silent)

    def plan(self, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str) -> tuple[Job, KubePlan]:
        """Return the bench as a job on exactly these nodes, judged by what the cluster says of itself."""
        job = parse_job(job_of(self.given, group, stage, bench, self.options))
        facts = dataclasses.replace(kubernetes_plan.look(self.client, job, self.namespace), fabric=False)
        kubernetes_plan.judge(job, facts, self.namespace)
        source = hosts_plan.source(job, bench_group.BENCH, bench_group.BENCH)
        made = kubernetes_plan.plan(job, source, run_id, "fabric", self.namespace, 1, facts)
        return job, dataclasses.replace(made, fleet=on_nodes(made.fleet, [self.hostnames[name] for name in group]))

    def _go(
        self, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str, folder: pathlib.Path
    ) -> tuple[str, dict[int, str]]:
        """Submit, follow and remove a gang; return the problem (empty when it ended well) and its ranks' nodes."""
        job, made = self.plan(group, stage, bench, run_id)
        *companions, main = kubernetes_plan.objects(made)
        try:
            apply(self.client, companions)
            live = t.cast(Object, apply(self.client, [main]).objects()[0])
            apply(self.client, owned(companions, live))
            heard = Heard()
            follower = _Follower(job, run_id, folder, Sources(self.client, made, live), heard, lambda line: None, None)
            follower.patience_s = stage.timeout_s + _START_S
            outcome = follower.run()
        finally:
            network_preflight.clear(self.client, [main, *companions])
        attempt = follower.story.attempts[-1] if follower.story.attempts else None
        ranks = {int(rank): str(node) for rank, node in (attempt.ranks if attempt else {}).items()}
        if outcome.outcome == "succeeded":
            return "", ranks
        reason = f": {heard.lines[-1]}" if heard.lines and not ranks else ""
        return f"{outcome.detail}{reason}", ranks


class Heard:
    """Keeps what the follower says: the last line explains a gang that never started."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        """Drop the values."""


class _Follower(ClusterFollower):
    """A follower that also gives up a gang that nobody starts."""

    patience_s = float(_START_S)

    def _ended(self) -> tuple[Outcome, float] | None:
        self._began = getattr(self, "_began", time.monotonic())
        found = super()._ended()
        if found is None and time.monotonic() > self._began + self.patience_s:
            detail = f"the gang did not end within {self.patience_s:.0f} s"
            return Outcome("failed", 124, "timeout", detail), time.monotonic()
        return found


def job_of(
    given: t.Mapping[str, t.Any],
    group: tuple[str, ...],
    stage: Stage,
    bench: Bench,
    options: t.Mapping[str, t.Any],
) -> Dict:
    """Return the job of a gang: the bench's own keys, with the user's image, mounts and placement."""
    own = bench_group.job_of(options, group, stage, bench)
    # What a pod writes to its log is what leaves it.
    own["env"].pop("NCCL_DEBUG_FILE", None)
    own["args"] = [*own["args"][: own["args"].index("--out")], "--out", "-"]
    placement = {**given.get("placement", {}), "backend": "kubernetes", "engine": "indexed_job"}
    # Where it runs is said node by node, whatever the last verdict was.
    placement.pop("island", None)
    placement["allow_slow_network"] = True
    kept = {key: value for key, value in given.items() if key in KEPT}
    env = {**given.get("env", {}), **own["env"]}
    refs = [item for item in given.get("secret_refs", []) if item.get("as") == "registry"]
    return {**own, **kept, "env": env, "secret_refs": refs, "placement": placement, "ttl_after_finished_s": 300}


def on_nodes(fleet: Fleet, hostnames: t.Sequence[str]) -> Fleet:
    """Return a fleet of these nodes alone, of which no two pods share one."""
    chosen = {"key": _HOSTNAME, "operator": "In", "values": list(hostnames)}
    return dataclasses.replace(fleet, expressions=(*fleet.expressions, chosen), whole_node=True)


def documents(logs: t.Mapping[str, str]) -> list[str]:
    """Return the whole result documents in the logs; one of which a piece is missing is none."""
    found: list[str] = []
    for text in logs.values():
        pieces: dict[int, str] = {}
        count = 0
        for match in _PIECE.finditer(text):
            pieces[int(match.group(1))], count = match.group(3), int(match.group(2))
        if pieces and sorted(pieces) == list(range(1, count + 1)):
            found.append("".join(pieces[number] for number in sorted(pieces)))
    return found
