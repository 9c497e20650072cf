# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of jobs on Kubernetes with their gates: against kubectl and a hand-written JobSet on the lab's cluster.

The contestants take turns on one cluster, in one queue of Kueue. Ours is the whole ``train`` playbook, net of an empty
one; kubectl's is the whole command. One round before the others is not counted: it proves the network of the pods, as
the first run of a day does. The first step is reported by the rank itself, on this machine's clock.

Figures of many gangs at once are in ``bench_kube_queue``.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time
import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    read_cluster_facts,
)
from ansible_collections.muster.training.tests.lab.host import LabError, unmet
from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, command, training
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, borrowed

from .bench_kube_queue import finish, many, playbook
from .bench_world import ROOT, Line, first_step, read

LIMIT_S = 180.0
STEPS, BATCH = 3, 8
# A whole core a pod, as far as the machine has them: less would be a figure of the throttle.
RESOURCES = {"cpu": 1, "memory": "2Gi"}
_SHARED = "/checkpoints"
_JOBSET = "jobset.x-k8s.io/v1alpha2"
_LOOK_S = 0.25
EMPTY = "- hosts: localhost\n  gather_facts: false\n  tasks: []\n"


class Arena:
    """The cluster with a controller, and ways for kubectl to do the same."""

    def __init__(self, lab: KubeLab, team: Team, folder: pathlib.Path) -> None:
        self.lab, self.team, self.folder = lab, team, folder
        self.controller = Controller(lab, team, folder)
        self.client = connect({"kubeconfig": str(lab.kubeconfig)})
        self.made = 0

    def name(self) -> str:
        """Return a new name."""
        self.made += 1
        return f"bench-{self.made}"

    def empty(self) -> float:
        """Return what an empty playbook takes."""
        began = time.monotonic()
        finish(playbook(self.folder, "empty", EMPTY, {}), "an empty playbook")
        return time.monotonic() - began

    def pods_after(self, began: float, name: str) -> float:
        """Return how long after ``began`` the two pods of a JobSet were there."""
        seen: set[str] = set()
        labels = f"jobset.sigs.k8s.io/jobset-name={name}"
        with self.client.watch("v1/Pod", self.team.namespace, labels=labels) as pods:
            while time.monotonic() - began < LIMIT_S:
                event = pods.next(1.0)
                if event is not None and event.type == "ADDED":
                    seen.add(event.object["metadata"]["uid"])
                    if len(seen) == 2:
                        return time.monotonic() - began
        raise SystemExit(f"bench: the pods of {name} did not come within {LIMIT_S:.0f} s")

    def remove(self, *names: str) -> None:
        """Delete JobSets and wait until their pods are gone."""
        self.lab.kubectl("delete", "jobset", *names, "-n", self.team.namespace, "--wait")
        if not until(lambda: not self.lab.pods(self.team.namespace), LIMIT_S):
            raise SystemExit(f"bench: pods of {', '.join(names)} did not go within {LIMIT_S:.0f} s")

    def ours_to_pods(self) -> tuple[float, str]:
        """Submit a job; return the seconds until its pods are there, and its name."""
        name = self.name()
        began = time.monotonic()
        play = self.controller.start("train", self.sleeping(), muster_run_id=name, training_job_wait=False)
        took = self.pods_after(began, name)
        finish(play, name)
        return took, name

    def theirs_to_pods(self) -> tuple[float, str]:
        """Apply the same manifest by kubectl; return the seconds until its pods are there, and its name."""
        name, place = self.name(), self.folder / "manifest.json"
        place.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self.manifest(name)}))
        began = time.monotonic()
        self.lab.kubectl("apply", "--server-side", "-f", str(place))
        return self.pods_after(began, name), name

    def sleeping(self) -> Dict:
        """Return a job of two pods that stays until it is removed."""
        return command("sleep", "120", checkpoints={"grace_s": 1})

    def manifest(self, name: str) -> list[KubeObject]:
        """Return all objects that a run of ours would make."""
        placement = {"backend": "kubernetes", "namespace": self.team.namespace}
        given = {**self.sleeping(), "image": self.lab.image, "placement": placement}
        job = parse_job(given)
        source = code_source.read_source(job, ROOT, self.folder)
        facts = read_cluster_facts(self.client, job, self.team.namespace)
        decision = kubernetes_plan.decide(job, self.team.namespace, facts)
        return kubernetes_plan.build_objects(kubernetes_plan.build_plan(decision, source, name, "default", 1))

    def ours_to_step(self) -> float:
        """Train; return the seconds from the start of the playbook to the first step."""
        name = self.name()
        job = training(self.lab, f"{self.team.namespace}/{name}", STEPS, resources=RESOURCES)
        began = time.time()
        finish(self.controller.start("train", job, muster_run_id=name), name)
        _unused, folder = self.controller.run(name)
        at = first_step(read(folder / "metrics.jsonl"))
        if at is None:
            raise SystemExit(f"bench: run {name} recorded no step")
        self.remove(name)
        return at - began

    def theirs_to_step(self) -> float:
        """Apply a hand-written JobSet of the same training; return the seconds to its first step."""
        name, place = self.name(), self.folder / "by-hand.json"
        home = self.lab.cluster.folder / "shared" / self.team.namespace / name
        home.mkdir(parents=True)
        for file in [*(ROOT / "examples" / "char_lm").glob("*.py"), ROOT / "LICENSE"]:
            (home / file.name).write_bytes(file.read_bytes())
        jobset = by_hand(self.team, name, self.lab.image)
        pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        self.lab.torch_in(pod["containers"][0], pod)
        place.write_text(json.dumps(jobset))
        began = time.time()
        self.lab.kubectl("apply", "--server-side", "-f", str(place))
        at = until(lambda: first_step(read(home / "metrics.jsonl")), LIMIT_S, _LOOK_S)
        if not at:
            raise SystemExit(f"bench: the hand-written JobSet made no step within {LIMIT_S:.0f} s")
        self.remove(name)
        return at - began


def by_hand(team: Team, name: str, image: str) -> Dict:
    """Return a JobSet that runs torchrun on code that lies on the nodes already, as people write it."""
    here = f"{_SHARED}/{team.namespace}/{name}"
    argv = ["python3", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    argv += ["--node-rank=$(JOB_COMPLETION_INDEX)", f"--master-addr={name}-node-0-0.{name}", "--master-port=29500"]
    argv += [f"{here}/train.py", "--steps", str(STEPS), "--batch-size", str(BATCH), "--data", f"{here}/LICENSE"]
    env = {"MUSTER_METRICS_FILE": f"{here}/metrics.jsonl", "GLOO_SOCKET_IFNAME": "eth0"}
    amounts = {key: str(value) for key, value in RESOURCES.items()}
    container: Dict = {
        "name": "node",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": argv,
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [{"name": "shared", "mountPath": _SHARED}],
    }
    pod: Dict = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    pod["volumes"] = [{"name": "shared", "hostPath": {"path": plan.SHARED}}]
    gang = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0}
    job = {"name": "node", "replicas": 1, "template": {"spec": {**gang, "template": {"spec": pod}}}}
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    labels = {"kueue.x-k8s.io/queue-name": team.queue}
    meta = {"name": name, "namespace": team.namespace, "labels": labels}
    return {
        "apiVersion": _JOBSET,
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"network": network, "replicatedJobs": [job]},
    }


def to_pods(arena: Arena, rounds: int) -> list[Line]:
    """Measure from the submission to the pods."""
    ours, theirs = [], []
    for number in range(-1, rounds):
        empty = arena.empty()
        mine, name = arena.ours_to_pods()
        other, applied = arena.theirs_to_pods()
        arena.remove(name, applied)
        if number >= 0:
            ours.append(mine - empty)
            theirs.append(other)
    print(f"  to pods, ours: {_shown(ours)} s; kubectl: {_shown(theirs)} s", flush=True)
    return [pods_line(ours, theirs)]


def pods_line(ours: Sequence[float], theirs: Sequence[float]) -> Line:
    """Judge the times to the pods."""
    a, b = statistics.median(ours), statistics.median(theirs)
    shown = f"{a:.2f} s against {b:.2f} s of kubectl apply, {a - b:+.2f} s (medians of {len(ours)})"
    return Line("submit to pods created", shown, "≤ 1 s more", a - b <= 1.0)


def to_first_step(arena: Arena, rounds: int) -> list[Line]:
    """Measure from the submission to the first step."""
    ours, theirs = [], []
    for number in range(-1, rounds):
        empty = arena.empty()
        mine, other = arena.ours_to_step(), arena.theirs_to_step()
        if number >= 0:
            ours.append(mine - empty)
            theirs.append(other)
    print(f"  to the first step, ours: {_shown(ours)} s; by hand: {_shown(theirs)} s", flush=True)
    return [step_line(ours, theirs)]


def step_line(ours: Sequence[float], theirs: Sequence[float]) -> Line:
    """Judge the times to the first step."""
    a, b = statistics.median(ours), statistics.median(theirs)
    shown = f"{a:.1f} s against {b:.1f} s of a hand-written JobSet, {a / b:.2f} × (medians of {len(ours)})"
    return Line("submit to first step", shown, "≤ 1.2 ×", a <= 1.2 * b)


def _shown(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def measure(lab: KubeLab, folder: pathlib.Path, only: str | None, rounds: int, gangs: int) -> t.Iterator[Line]:
    """Yield each figure when it is known."""
    parts: dict[str, Callable[[Arena, int], list[Line]]] = {"pods": to_pods, "step": to_first_step}
    for name, part in parts.items():
        if only in (None, name):
            (folder / name).mkdir()
            with lab.namespace(cpu="4", memory="16Gi") as team:
                yield from part(Arena(lab, team, folder / name), rounds)
    if only in (None, "many"):
        yield from many(lab, folder, gangs)


def main(argv: list[str]) -> int:
    """Print every figure with PASS or FAIL; return 1 when a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gangs", type=int, default=50)
    parser.add_argument("--only", choices=["pods", "step", "many"])
    options = parser.parse_args(argv)
    if unmet():
        raise SystemExit(f"bench: {unmet()}")
    # Compiled code is kept between runs, as is the default.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A SIGTERM leaves the cluster in order.
    signal.signal(signal.SIGTERM, lambda *_unused: sys.exit(143))
    failed = False
    try:
        with borrowed() as lab, tempfile.TemporaryDirectory(prefix="muster-bench-") as root:
            if not lab.torch and options.only in (None, "step"):
                raise LabError("the cluster has no torch (MUSTER_TORCH_PYTHON)")
            for line in measure(lab, pathlib.Path(root), options.only, options.rounds, options.gangs):
                print(f"{line.what}: {line.value} (gate {line.gate}) {'PASS' if line.ok else 'FAIL'}", flush=True)
                failed = failed or not line.ok
    except LabError as exc:
        raise SystemExit(f"bench: {exc}") from exc
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
