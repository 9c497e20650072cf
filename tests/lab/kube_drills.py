# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drills on the cluster: what is done to a run that trains, and what has to be true of it afterwards.

A drill is a function that gets a :class:`Scene`, waits for its moment, and does it; ``KINDS`` names them all, and a
new one is one function more in it. The run itself is the collection's own: the train playbook, real torch over gloo.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import typing as t

from ansible_collections.muster.training.tests.lab import kube_rented
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import (
    INTERVAL,
    Controller,
    Dict,
    Play,
    last_word,
    training,
)
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

# Well before a checkpoint is due: its line must not be lost with the node that printed it.
STEPS, PACE_S, AT_STEP = 90, 0.1, 28
OUTAGE_S = 60
LIMIT_S = 420
_RUN, _ROLE = "muster.training/run-id", "muster.training/role"
_INDEX = "batch.kubernetes.io/job-completion-index"
# A rank is the script itself, not the recorder around it, whose command ends in the same words.
RANK = "^python3 -u /muster/run/code/train.py"
DISK = "/mnt/drill"


class Failed(Exception):
    """A drill could not be done, or what has to be true afterwards is not; in one line."""


@dataclasses.dataclass
class Scene:
    """A run that trains. ``fault_at``: when the drill struck (Unix seconds); ``notes``: what it wants to be told."""

    controller: Controller
    run_id: str
    play: Play
    job: Dict
    fault_at: float = 0.0
    healed_at: float = 0.0
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def lab(self) -> KubeLab:
        """The cluster."""
        return self.controller.lab

    @property
    def folder(self) -> pathlib.Path | None:
        """The run's folder on the controller, None while it has none."""
        return next((self.controller.folder / "state").glob(f"*/runs/{self.run_id}"), None)

    def metrics(self) -> list[Dict]:
        """Return what the run has recorded of its steps."""
        place = self.folder / "metrics.jsonl" if self.folder else None
        text = place.read_text() if place and place.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def step(self) -> int:
        """Return the last step that is known."""
        return max((int(line["step"]) for line in self.metrics() if "step" in line), default=0)

    def reach(self, step: int) -> None:
        """Wait until the run has made a step."""
        if not until(lambda: self.step() >= step or self.play.ended, LIMIT_S) or self.play.ended:
            raise Failed(f"step {step} was not reached: {last_word(self.play.output)}")

    def pods(self) -> list[Dict]:
        """Return the run's pods, without those of the probe."""
        found = self.lab.pods(self.controller.team.namespace, f"{_RUN}%3D{self.run_id}")
        return [pod for pod in found if pod["metadata"]["labels"].get(_ROLE) != "probe"]

    def pod(self, rank: int) -> Dict:
        """Return the pod of a node rank."""
        found = [pod for pod in self.pods() if pod["metadata"]["annotations"].get(_INDEX) == str(rank)]
        if not found:
            raise Failed(f"the run has no pod of node rank {rank}")
        return found[-1]

    def node(self, rank: int) -> str:
        """Return the node that a node rank is on."""
        return str(self.pod(rank)["spec"]["nodeName"])

    def struck(self) -> None:
        """Note that the drill strikes now."""
        self.fault_at = time.time()


def kill_rank(scene: Scene) -> None:
    """SIGKILL to the process of one rank."""
    scene.reach(AT_STEP)
    node = scene.node(1)
    pid = scene.lab.on_node(node, "pgrep", "-f", RANK).split()[0]
    scene.struck()
    scene.lab.on_node(node, "kill", "-KILL", pid)


def kill_pod(scene: Scene) -> None:
    """A pod is deleted by force."""
    scene.reach(AT_STEP)
    meta = scene.pod(1)["metadata"]
    scene.struck()
    scene.lab.kubectl("delete", "pod", meta["name"], "-n", meta["namespace"], "--force", "--grace-period=0")


def kill_kubelet(scene: Scene) -> None:
    """The kubelet of a node dies and stays away; its containers live on."""
    scene.reach(AT_STEP)
    node = scene.node(1)
    scene.struck()
    scene.lab.on_node(node, "systemctl", "kill", "--signal=KILL", "lab-kubelet.service")
    scene.lab.on_node(node, "systemctl", "stop", "lab-kubelet.service")


def cut_node(scene: Scene) -> None:
    """A node's cable is pulled; it lives on and reaches nobody."""
    scene.reach(AT_STEP)
    node = scene.node(1)
    scene.struck()
    scene.lab.fault("cut", node)


def kill_node(scene: Scene) -> None:
    """A node loses its power."""
    scene.reach(AT_STEP)
    node = scene.node(1)
    scene.struck()
    scene.lab.fault("kill", node)


def delete_node(scene: Scene) -> None:
    """A Node object is deleted while its machine works."""
    # Kubernetes collects the pods of such a node up to a minute later.
    scene.reach(INTERVAL + 5)
    node = scene.node(1)
    scene.struck()
    scene.lab.kubectl("delete", "node", node, "--wait=false")


def replace_node(scene: Scene) -> None:
    """A machine is taken away for good, and another one comes under its name."""
    scene.reach(AT_STEP)
    node = scene.node(1)
    scene.struck()
    scene.lab.cluster.remove(node)
    scene.lab.cluster.add(node)


def heal_node(scene: Scene) -> None:
    """The provider takes a machine away: ``heal`` rents another one, it joins, and the gang starts again on it."""
    with kube_rented.rented(scene.controller) as cluster:
        scene.reach(AT_STEP)
        node = scene.node(1)
        before = cluster.joined()
        scene.struck()
        cluster.lose(node)
        code, output = scene.controller.play("heal", inventory=cluster.inventory, **cluster.values)
        added = cluster.joined() - before
        if code or len(added) != 1:
            told = "; ".join(line.strip() for line in output.splitlines() if line.strip() and "***" not in line)
            raise Failed(f"it was not healed (exit code {code}, new: {len(added)}): {told[-1500:]}")
        _finish(scene)
        if cluster.world.alive != len(before):
            raise Failed(f"{cluster.world.alive} machines bill after it, {len(before)} before")


def outage_submit(scene: Scene) -> None:
    """The API server is away while the job is being submitted."""

    def submits() -> bool:
        # Written when all is proven, and before the first object of the run is made.
        return scene.folder is not None and (scene.folder / "run.json").exists()

    if not until(lambda: submits() or scene.play.ended, 90, 0.01):
        raise Failed(f"the job was not submitted: {last_word(scene.play.output)}")
    _outage(scene)


def outage_wait(scene: Scene) -> None:
    """The API server is away while the gang is waited for."""
    if not until(lambda: scene.folder is not None and bool(scene.pods()), LIMIT_S):
        raise Failed("the gang has no pods")
    _outage(scene)


def outage_logs(scene: Scene) -> None:
    """The API server is away while the logs of the ranks are followed."""
    scene.reach(AT_STEP)
    _outage(scene)


def _outage(scene: Scene) -> None:
    scene.struck()
    scene.lab.cluster.control_plane("stop")
    time.sleep(OUTAGE_S)
    scene.lab.cluster.control_plane("start")
    if not until(scene.lab.api.is_ready, 90):
        raise Failed("the API server did not come back")
    scene.healed_at = time.time()


def two_gangs(scene: Scene) -> None:
    """A second gang comes where there is quota for one: it has no pod until the first has ended."""
    scene.reach(20)
    second = _second(scene, "second")
    early: list[str] = []

    def first_ended() -> bool:
        names = [pod["metadata"]["name"] for pod in second.pods()]
        over = scene.play.ended
        early.extend([] if over else names)
        return over

    if not until(first_ended, LIMIT_S):
        raise Failed("the first gang did not end")
    if early:
        raise Failed(f"the second gang had pods while the first held the quota: {early[0]}")
    scene.struck()
    _finish(second)
    first = min((float(line["at"]) for line in second.metrics() if "step" in line), default=scene.fault_at)
    scene.notes.append(f"the second gang's first step came {first - scene.fault_at:.1f} s after the first gang's end")


def higher_priority(scene: Scene) -> None:
    """A job of higher priority comes where there is quota for one: the first one makes room and resumes after it."""
    scene.reach(AT_STEP)
    scene.struck()
    urgent = _second(scene, "urgent", steps=20, placement={"priority": "drill-high"})
    _finish(urgent)
    if scene.play.ended:
        raise Failed("the first job had ended before the urgent one")


def _second(scene: Scene, name: str, steps: int = 20, **job: t.Any) -> Scene:
    run_id = f"{scene.run_id}-{name}"
    made = training(scene.lab, f"{scene.controller.team.namespace}/{name}", steps, PACE_S, **job)
    play = scene.controller.start("train", made, muster_run_id=run_id)
    return Scene(scene.controller, run_id, play, made)


def _finish(scene: Scene) -> None:
    code, output = scene.play.wait(LIMIT_S)
    if code:
        raise Failed(f"run {scene.run_id} ended with {code}: {last_word(output)}")


def full_disk(scene: Scene) -> None:
    """The disk of the checkpoints is full: the run fails and says so; with room again, the same command resumes it."""
    scene.reach(AT_STEP)
    node = scene.node(0)
    scene.struck()
    scene.lab.on_node(node, "sh", "-c", f"dd if=/dev/zero of={DISK}/filler bs=1M 2>/dev/null; sync")
    code, output = scene.play.wait(LIMIT_S)
    if code == 0 or not ("No space left" in output or "MiB are needed" in output):
        raise Failed(f"a full disk was not named (exit code {code}): {last_word(output)}")
    scene.lab.on_node(node, "rm", f"{DISK}/filler")
    scene.healed_at = time.time()
    scene.play = scene.controller.start("train", scene.job, muster_run_id=scene.run_id)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A drill. ``restarts``: whether a new attempt has to follow; ``cpu``: the queue's quota; ``job``: options beside.

    ``pace_s``: seconds that a step takes at least, so that the run outlasts what Kubernetes needs to see the fault;
    ``machines``: whether it does something to machines, which have to be put in order; ``disk``: it needs a small disk.
    """

    title: str
    strike: t.Callable[[Scene], None]
    restarts: bool = True
    cpu: str = "4"
    disk: bool = False
    machines: bool = False
    pace_s: float = PACE_S
    job: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


KINDS: dict[str, Kind] = {
    "kill_rank": Kind("a rank is killed", kill_rank),
    "kill_pod": Kind("a pod is killed", kill_pod),
    # Slow enough that steps are left when the loss is acted on, 85 s later: the ranks live on until then.
    "kill_kubelet": Kind("a kubelet is killed and stays away", kill_kubelet, machines=True, pace_s=1.8),
    "kill_node": Kind("a node loses its power", kill_node, machines=True),
    "cut_node": Kind("a node is cut off the network", cut_node, machines=True),
    "delete_node": Kind("a node is deleted", delete_node, machines=True, pace_s=1.5),
    "replace_node": Kind("a node is replaced by a new one of its name", replace_node, machines=True),
    "heal_node": Kind(
        "a rented node is lost, another one is rented",
        heal_node,
        machines=True,
        job={"restart": {"on_lost_node": "replace"}, "resources": {"cpu": 1.2, "memory": "2Gi"}},
    ),
    "outage_submit": Kind("the API server is away for 60 s: submit", outage_submit, restarts=False, machines=True),
    "outage_wait": Kind("the API server is away for 60 s: wait", outage_wait, restarts=False, machines=True),
    "outage_logs": Kind("the API server is away for 60 s: logs", outage_logs, restarts=False, machines=True),
    "two_gangs": Kind("two gangs, quota for one", two_gangs, restarts=False, cpu="1"),
    "higher_priority": Kind(
        "a job of higher priority arrives", higher_priority, cpu="1", job={"placement": {"priority": "drill-low"}}
    ),
    "full_disk": Kind(
        "the checkpoints' disk is full", full_disk, disk=True, machines=True, job={"nodes": 1, "processes_per_node": 2}
    ),
}
