# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Doing a drill and proving what became of the run: its record, its logs, and what is left on the cluster."""

from __future__ import annotations

import dataclasses
import pathlib
import time

from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import out_of_service
from ansible_collections.muster.training.plugins.plugin_utils._report.data import drills
from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_drills import (
    DISK,
    KINDS,
    LIMIT_S,
    RANK,
    STEPS,
    Failed,
    Kind,
    Scene,
)
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, last_word, training
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab


@dataclasses.dataclass
class Result:
    """What a drill showed."""

    kind: str
    at: str
    passed: bool = False
    problem: str = ""
    resumed: bool | None = None
    attempts: int = 0
    steps_lost: int | None = None
    seconds_lost: float | None = None
    logs_kept: bool | None = None
    left: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    duration_s: float = 0.0


def perform(lab: KubeLab, name: str, folder: pathlib.Path) -> Result:
    """Do one drill with a namespace and a state home of its own; the cluster is in order again afterwards."""
    kind, began = KINDS[name], time.monotonic()
    result = Result(name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        space = lab.namespace(cpu=kind.cpu, memory="8Gi", preemption=True)
        with space as team, lab.priorities(drill_low=10, drill_high=100):
            try:
                _run(Controller(lab, team, folder), kind, result)
            finally:
                # Before the namespace goes: a node that is away would keep its pods.
                if kind.machines:
                    restore(lab)
    except (Failed, LabError) as exc:
        result.problem = str(exc)
    result.passed = not result.problem
    result.duration_s = round(time.monotonic() - began, 1)
    return result


def _run(controller: Controller, kind: Kind, result: Result) -> None:
    lab, space = controller.lab, controller.team.namespace
    _prepare(lab, kind)
    run_id = f"{result.kind.replace('_', '-')}-{space[2:]}"
    # The lab has two machines: without one of them, the gang starts again on the other.
    shared = {"placement": {"share_machines": True}} if kind.machines else {}
    job = training(lab, space, STEPS, kind.pace_s, **shared, **kind.job)
    if kind.disk:
        job["mounts"] = [*job["mounts"], {"name": "disk", "path": "/disk", "host_path": DISK}]
        job["checkpoints"] = {**job["checkpoints"], "path": "/disk/checkpoints"}
    scene = Scene(controller, run_id, controller.start("train", job, muster_run_id=run_id), job)
    try:
        kind.strike(scene)
        if not scene.fault_at:
            raise Failed("nothing was done to the run")
        code, output = scene.play.wait(LIMIT_S)
        result.notes = scene.notes
        result.left = _left(scene)
        if scene.folder is None:
            raise Failed(f"the run was not made: {last_word(output)}")
        _judge(scene, kind, result)
        if code:
            raise Failed(f"the run ended with {code}: {last_word(output)}")
    finally:
        scene.play.stop()


def _judge(scene: Scene, kind: Kind, result: Result) -> None:
    """Fill in what the record proves; raise for what has to be true and is not."""
    record, folder = scene.controller.run(scene.run_id)
    attempts = record["attempts"]
    result.attempts = len(attempts)
    result.steps_lost, result.seconds_lost = record["steps_lost"], _seconds_lost(scene, kind)
    proof = drills.judge_drill(folder, scene.fault_at) if kind.restarts else {}
    if kind.restarts:
        result.resumed, result.logs_kept = bool(proof["resumed"]), _logs_kept(scene, folder)
    seen = sorted({int(line["step"]) for line in scene.metrics() if "step" in line})
    if (record["outcome"], record["world_size"]["seen"]) != ("succeeded", record["world_size"]["asked"]):
        raise Failed(f"{record['outcome']}: {record['detail']}; ranks {record['world_size']}")
    if seen != list(range(1, STEPS + 1)):
        raise Failed(f"{STEPS - len(seen)} steps are missing from the metrics")
    if kind.restarts and not result.resumed:
        raise Failed(f"no resume was proven: {proof['problem']}")
    if not kind.restarts and len(attempts) != 1:
        raise Failed(f"{len(attempts)} attempts, one was due")
    if result.logs_kept is False:
        raise Failed("the logs of the failed attempt are not kept")
    if result.left:
        raise Failed(f"left behind: {', '.join(result.left)}")


def _seconds_lost(scene: Scene, kind: Kind) -> float | None:
    """Return from the last step before the fault to the first step after it, by the clocks of the ranks."""
    times = sorted(float(line["at"]) for line in scene.metrics() if "step" in line)
    before = [at for at in times if at <= scene.fault_at]
    after = [at for at in times if at > scene.fault_at]
    if kind.restarts:
        # Ranks may live on for a while after the fault: what counts is the pause, wherever it lies.
        pauses = [late - early for early, late in zip(before[-1:] + after, after, strict=False)]
        return round(max(pauses), 1) if pauses else None
    if not before or not after:
        return None
    pauses = [late - early for early, late in zip(before[-1:] + after, after, strict=False)]
    return round(max(0.0, max(pauses) - kind.pace_s), 1)


def _logs_kept(scene: Scene, folder: pathlib.Path) -> bool:
    """Return whether the first attempt's words are on the controller and beside the checkpoints."""
    says = "attempt 1: starts at step 1"
    here = any(says in place.read_text(errors="replace") for place in (folder / "logs").glob("*.log"))
    place = f"{plan.SHARED}/{scene.controller.team.namespace}/.muster/{scene.run_id}/logs/attempt-1"
    if scene.job["checkpoints"]["path"].startswith("/disk"):
        place = f"{DISK}/checkpoints/.muster/{scene.run_id}/logs/attempt-1"
    nodes = [
        name
        for name in scene.lab.nodes
        if scene.lab.cluster.machines.state(scene.lab.cluster.machine(name)) != "exited"
    ]
    there = [
        scene.lab.cluster.machines.run(scene.lab.cluster.machine(name), "grep", "-rqs", says, place) for name in nodes
    ]
    return here and any(done.returncode == 0 for done in there)


def _left(scene: Scene) -> list[str]:
    """Return what still holds something after the run has ended: pods, Secrets, Leases, admitted workloads, ranks."""

    def found() -> list[str]:
        space = scene.controller.team.namespace
        pods = [pod for pod in scene.lab.pods(space) if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        names = [f"pod {pod['metadata']['name']} ({pod['status']['phase']})" for pod in pods]
        queue = scene.lab.api.get(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{space}") or {}
        used = [
            f"{item['total']} {item['name']} of the quota"
            for flavor in queue.get("status", {}).get("flavorsUsage", [])
            for item in flavor["resources"]
            if item["total"] not in ("0", 0)
        ]
        # The namespace is the drill's own, and a new one holds neither.
        for kind in ("api/v1/{}/secrets", "apis/coordination.k8s.io/v1/{}/leases"):
            items = (scene.lab.api.get(f"/{kind.format(f'namespaces/{space}')}") or {}).get("items") or []
            names += [f"{kind.rsplit('/', 1)[1][:-1]} {item['metadata']['name']}" for item in items]
        return names + used + _processes(scene.lab)

    until(lambda: not found(), 20, 1)
    return found()


def _processes(lab: KubeLab) -> list[str]:
    cluster = lab.cluster
    alive = [name for name in lab.nodes if cluster.machines.state(cluster.machine(name)) in ("running", "cut")]
    done = {name: cluster.machines.run(cluster.machine(name), "pgrep", "-f", RANK) for name in alive}
    return [f"ranks on {name}" for name, answer in done.items() if answer.stdout.strip()]


def _prepare(lab: KubeLab, kind: Kind) -> None:
    if kind.disk:
        lab.on_node(lab.nodes[0], "sh", "-c", f"mkdir -p {DISK} && mount -t tmpfs -o size=300m,mode=777 drill {DISK}")
        narrow(lab, 1)


def narrow(lab: KubeLab, count: int = 2) -> None:
    """Have only the first ``count`` nodes take pods, however many the lab has; :func:`restore` takes it back."""
    for name in lab.nodes[count:]:
        lab.kubectl("cordon", name)


def restore(lab: KubeLab) -> None:
    """Put the cluster back in order: machines, kubelets, nodes, disks."""
    cluster = lab.cluster
    listed = lab.api.nodes()
    for name in lab.nodes:
        machine = cluster.machine(name)
        if cluster.machines.state(machine) == "cut":
            cluster.machines.heal(machine)
        if cluster.machines.state(machine) == "running":
            # A kubelet registers its node once, when it starts.
            verb = "start" if name in listed else "restart"
            lab.on_node(name, "systemctl", verb, "lab-kubelet.service")
    cluster.restore()
    for name in lab.nodes:
        lab.kubectl("uncordon", name)
        if out_of_service.has_taint(lab.api.get(f"/api/v1/nodes/{name}") or {}):
            lab.kubectl("taint", "node", name, f"{out_of_service.OUT_OF_SERVICE}-")
        lab.on_node(name, "sh", "-c", f"! mountpoint -q {DISK} || umount -l {DISK}")
