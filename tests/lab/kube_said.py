# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of test_kube_said_and_true: each injects one fault into a run in pods and returns what is true of it.

What the ranks note for themselves lies in the folder that all nodes share; where their pods were is the cluster's word.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import pathlib
import random
import shutil
import signal
import time
import typing as t

from ansible_collections.muster.training.tests.e2e.faulty_store import FaultyStore
from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.e2e.said_runs import FAIL_FAST, at, hold
from ansible_collections.muster.training.tests.e2e.said_world import PROGRAM, find_stored, gather, split
from ansible_collections.muster.training.tests.e2e.service_world import Store
from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, Play, command
from ansible_collections.muster.training.tests.support.judge import Said
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab
from ansible_collections.muster.training.tests.support.truth import Save, Truth, read_lives, still_there

LIMIT_S = 300.0
_MINE = "muster.training/run-id%3D{},muster.training/role%3Dnode"


def gateway(lab: KubeLab) -> str:
    """Return the address of this machine that pods and nodes of the lab reach."""
    return str(ipaddress.IPv4Network(lab.cluster.up_record.subnet)[1])


class PodScene:
    """A run in two pods and everything that was said of it."""

    def __init__(self, controller: Controller, run_id: str, store: Store | None, door: FaultyStore | None) -> None:
        self.controller, self.run_id, self.store, self.door = controller, run_id, store, door
        self.lab = controller.lab
        self.truth = self.lab.cluster.folder / "shared" / f"truth-{run_id}"
        self.truth.mkdir(mode=0o777)
        self.inside = pathlib.Path(plan.SHARED, self.truth.name)
        shutil.copy(PROGRAM, self.truth / "program.py")
        self.screens: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        self.model = controller.folder / "model"
        self.machines: set[str] = set()
        self.options: Dict = {}

    def close(self) -> None:
        shutil.rmtree(self.truth, ignore_errors=True)

    # What is run

    def job(self, plan_of: t.Mapping[str, t.Any], **values: t.Any) -> Dict:
        """Return a job of the truthful program with a plan."""
        (self.truth / "plan.json").write_text(json.dumps({**plan_of, "truth": str(self.inside)}))
        mounts = [{"name": "truth", "path": plan.SHARED, "host_path": plan.SHARED}]
        where = {"binding": "store"} if self.store else {"path": str(self.inside / "saves")}
        checkpoints = {"interval_steps": 5, "grace_s": 4, **where}
        argv = ("python3", "-I", "-S", str(self.inside / "program.py"), str(self.inside / "plan.json"))
        return command(*argv, name="said", mounts=mounts, **{"checkpoints": checkpoints, **values})

    def start(self, job: Dict) -> Play:
        """Start ``train``."""
        return self.controller.start("train", job, muster_run_id=self.run_id, **self.options)

    def train(self, job: Dict) -> None:
        """Run ``train`` to its end."""
        self.ended(self.start(job))

    def ended(self, play: Play) -> None:
        """Wait for the end of a ``train``, keep what it said, and note where its pods were."""
        code, output = play.wait(LIMIT_S)
        self.keep("train", code, output)
        self.look_where()

    def keep(self, name: str, code: int, output: str) -> None:
        """Keep what a playbook said; a second one of its name replaces the first, which is kept under another."""
        if name in self.screens:
            earlier = f"earlier {name}"
            self.screens[earlier] = self.screens.get(earlier, "") + self.screens[name]
        self.screens[name], self.codes[name] = output, code

    def pods(self) -> list[Dict]:
        """Return the pods of the run."""
        return self.lab.pods(self.controller.team.namespace, _MINE.format(self.run_id))

    def pod(self, rank: int) -> Dict:
        """Return the pod of a rank."""
        (found,) = [pod for pod in self.pods() if f"-node-0-{rank}-" in pod["metadata"]["name"]]
        return found

    def look_where(self) -> None:
        """Note on which machines the pods of the run are, as the cluster has it."""
        self.machines = {pod["spec"]["nodeName"] for pod in self.pods() if pod["spec"].get("nodeName")} or self.machines

    def held(self, step: int, play: Play, rank: int = 0, start: int = 1) -> None:
        """Wait until a rank holds at a step."""
        place = self.truth / f"held-{rank}-{start}-{step}"
        until(lambda: place.exists() or play.ended, f"rank {rank} at step {step}", 180)
        assert place.exists(), play.output[-3000:]
        self.look_where()

    def go(self, step: int, rank: int = 0, start: int = 1) -> None:
        """Let a rank that holds go."""
        (self.truth / f"go-{rank}-{start}-{step}").touch()

    def lines(self, name: str) -> list[Dict]:
        """Return the lines of a file of the run's folder."""
        place = self.folder / name
        return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []

    def known(self, step: int) -> None:
        """Wait until the controller has read that a step was made."""
        until(lambda: any(line.get("step") == step for line in self.lines("metrics.jsonl")), f"step {step} here", 90)

    def wait_stored(self, step: int) -> None:
        """Wait until the run has told that a step is in the bucket."""
        told = [("checkpoint_stored", f"step-{step}.pt")]
        until(
            lambda: told[0] in [(x["kind"], x.get("detail")) for x in self.lines("events.jsonl")], f"{step} stored", 90
        )

    def kill_controller(self, play: Play) -> None:
        """Kill ansible-playbook with all its workers."""
        play.process.send_signal(signal.SIGKILL)
        play.process.wait()
        # Its workers end as they find that it has gone.
        time.sleep(3)

    def look(self) -> Said:
        """Run the playbooks that look at a run, in one process as long as none fails; return all that was said."""
        wanted = ["status", "report", "fetch"]
        while wanted:
            values = {"muster_run_id": self.run_id, "muster_fetch_dest": str(self.model), **self.options}
            code, output = self.controller.play(" ".join(wanted), **values)
            parts = split(output)
            done = [name for name in wanted if name.capitalize() in parts]
            assert done, output
            for name in done:
                self.keep(name, 0, parts[name.capitalize()])
            self.codes[done[-1]] = code
            wanted = wanted[len(done) :]
        return gather(self.folder, self.model, self.screens, self.codes)

    # What is

    @property
    def folder(self) -> pathlib.Path:
        """The run's folder on the controller."""
        return self.controller.folder / "state" / "default" / "runs" / self.run_id

    def is_kept(self, save: Save) -> bool:
        """Whether a save is whole on the disk that outlives the pods."""
        with contextlib.suppress(ValueError):
            place = self.truth / pathlib.Path(save.path).relative_to(self.inside)
            return bool(still_there([dataclasses.replace(save, path=str(place))]))
        return False

    def true(self, *outcomes: str, **values: t.Any) -> Truth:
        """Return what is true now; call it before :meth:`look`."""
        lives = read_lives(self.truth)
        saves = [save for life in lives for save in life.saves]
        size = json.loads((self.truth / "plan.json").read_text()).get("size", 3000)
        digests = {save.sha256 for save in saves}
        stored = find_stored(self.store, self.run_id, digests, size) if self.store else frozenset()
        is_open = self.door is None or self.door.is_open
        return Truth(
            outcomes=frozenset(outcomes),
            lives=lives,
            kept=tuple(save for save in saves if self.is_kept(save)),
            bucket=self.store is not None,
            stored=stored if is_open else frozenset(),
            stored_then=stored,
            machines=len(self.machines),
            **{"ranks": 2, **values},
        )


Run = t.Callable[[PodScene], Truth]


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: its name, what it does, and whether it has a bucket."""

    name: str
    run: Run
    bucket: bool = False


def simple(outcome: str, plan_of: Dict, needs: t.Collection[str] = (), **values: t.Any) -> Run:
    """Return a run of one ``train``; ``values`` are keys of the job."""

    def run(scene: PodScene) -> Truth:
        scene.train(scene.job(plan_of, **values))
        return scene.true(outcome, needs=frozenset(needs))

    return run


@contextlib.contextmanager
def one_machine(scene: PodScene) -> t.Iterator[None]:
    """Leave one machine for pods."""
    others = scene.lab.nodes[1:]
    try:
        for name in others:
            scene.lab.kubectl("cordon", name)
        yield
    finally:
        for name in others:
            scene.lab.kubectl("uncordon", name)


def shared_machine(scene: PodScene) -> Truth:
    """Both pods are on one machine, as the job allows."""
    with one_machine(scene):
        scene.train(scene.job({}, placement={"share_machines": True}))
    return scene.true("succeeded")


def too_few_machines(scene: PodScene) -> Truth:
    """One machine is left for two pods that may not share it."""
    with one_machine(scene):
        scene.train(scene.job({}))
    return scene.true("refused")


def drilled(scene: PodScene) -> Truth:
    """A drill of rank 1 kills the pod of that rank, of two on one machine."""
    job = scene.job({"steps": 60, "step_s": 0.3}, placement={"share_machines": True})
    drill = {"target": "agent", "rank": 1, "at_step": 12}
    with one_machine(scene):
        code, output = scene.controller.play("drill", job, muster_drill=drill, limit_s=LIMIT_S)
        scene.keep("train", code, output)
        (place,) = scene.folder.parent.iterdir()
        scene.run_id = place.name
        scene.look_where()
    (killed,) = [line["detail"] for line in scene.lines("events.jsonl") if line["kind"] == "drill"]
    assert "-node-0-1-" in killed, killed
    return scene.true("succeeded", hurt=True)


def pod_killed(scene: PodScene) -> Truth:
    """The pod of rank 1 is deleted by force at step 13; the gang begins again from what was saved."""
    play = scene.start(scene.job({"holds": [hold(13)]}))
    scene.held(13, play)
    scene.known(13)
    meta = scene.pod(1)["metadata"]
    scene.lab.kubectl("delete", "pod", meta["name"], "-n", meta["namespace"], "--force", "--grace-period=0")
    scene.ended(play)
    return scene.true("succeeded", hurt=True)


def node_gone(scene: PodScene) -> Truth:
    """The machine of rank 1 loses its power at step 13; the gang begins again on the other one, which it may share."""
    play = scene.start(scene.job({"holds": [hold(13)]}, placement={"share_machines": True}))
    scene.held(13, play)
    scene.known(13)
    lost = scene.pod(1)["spec"]["nodeName"]
    scene.lab.fault("kill", lost)
    try:
        code, output = scene.controller.play("heal", muster_lost_nodes=[lost], muster_heal_wait=False)
        assert code == 0, output
        scene.ended(play)
    finally:
        restore(scene, lost)
    return scene.true("succeeded", hurt=True)


def restore(scene: PodScene, node: str) -> None:
    """Boot a machine again and have it take pods."""
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    scene.lab.fault("start", node)
    until(lambda: scene.lab.kubectl("get", "node", node, "-o", ready) == "True", f"{node} Ready", 120)
    code, output = scene.controller.play("heal", muster_heal_wait=False)
    assert code == 0, output


def log_ends(scene: PodScene) -> Truth:
    """The kubelet of rank 0's machine is restarted at step 8: its streams of logs end, the pods run on."""
    play = scene.start(scene.job({"holds": [hold(8)]}))
    scene.held(8, play)
    scene.known(8)
    scene.lab.on_node(scene.pod(0)["spec"]["nodeName"], "systemctl", "restart", "lab-kubelet")
    scene.go(8)
    scene.ended(play)
    return scene.true("succeeded")


def record_cut(name: str, seed: int) -> Run:
    """Return a run whose follower is killed at step 8 and a file of whose record is cut; the same command follows."""

    def run(scene: PodScene) -> Truth:
        job = scene.job({"holds": [hold(8)]})
        play = scene.start(job)
        scene.held(8, play)
        scene.known(8)
        scene.kill_controller(play)
        place = scene.folder / name
        data = place.read_bytes()
        place.write_bytes(data[: random.Random(seed).randrange(1, len(data))])
        scene.go(8)
        scene.train(job)
        return scene.true("succeeded", hurt=True)

    return run


def unfollowed(scene: PodScene) -> Truth:
    """The follower is killed at step 8, the run ends, and the same command reads what its pods kept."""
    job = scene.job({"holds": [hold(8)]})
    play = scene.start(job)
    scene.held(8, play)
    scene.kill_controller(play)
    scene.go(8)
    until(lambda: {pod["status"]["phase"] for pod in scene.pods()} == {"Succeeded"}, "the end of the pods", 120)
    scene.train(job)
    return scene.true("succeeded")


def stalled(scene: PodScene) -> Truth:
    """Rank 0 stands at step 7 until the job's limit ends the run; where the ranks stood is kept."""
    scene.train(scene.job({"acts": [at(7, "hang")]}, stop_on={"stalled_s": 8}))
    kept = sorted(place.name for place in (scene.folder / "logs").glob("*.stacks"))
    assert len(kept) == 2, (kept, scene.screens["train"][-2000:])
    assert all(f"rank {rank} on node-" in scene.screens["train"] for rank in (0, 1)), scene.screens["train"][-2000:]
    return scene.true("failed")


def broken(fault: t.Callable[[FaultyStore], None], **plan_of: t.Any) -> Run:
    """Return a run whose store has a fault from step 7 on (5 is stored then); what was in its pods goes with them."""

    def run(scene: PodScene) -> Truth:
        assert scene.door
        play = scene.start(scene.job({"holds": [hold(7)], **plan_of}))
        scene.held(7, play)
        scene.wait_stored(5)
        fault(scene.door)
        scene.go(7)
        scene.ended(play)
        return scene.true("succeeded")

    return run


def bucket_killed(scene: PodScene) -> Truth:
    """A pod is deleted by force at step 13, with its disk: the gang begins again from what is in the bucket."""
    play = scene.start(scene.job({"holds": [hold(13)]}))
    scene.held(13, play)
    scene.wait_stored(10)
    scene.known(13)
    meta = scene.pod(0)["metadata"]
    scene.lab.kubectl("delete", "pod", meta["name"], "-n", meta["namespace"], "--force", "--grace-period=0")
    scene.ended(play)
    return scene.true("succeeded", hurt=True)


CASES = (
    Case("trained", simple("succeeded", {})),
    Case("machine shared", shared_machine),
    Case("too few machines", too_few_machines),
    Case("store gone", broken(FaultyStore.shut), True),
    Case("stalled", stalled),
    Case("pod killed", pod_killed),
    Case("events cut", record_cut("events.jsonl", 2)),
    Case("log ends", log_ends),
    Case("stored", simple("succeeded", {}), True),
    Case("pod killed, stored", bucket_killed, True),
    Case("unfollowed", unfollowed),
    Case("store full", broken(FaultyStore.fill), True),
    Case("exit 3", simple("failed", {"acts": [at(7, "exit", 3)]}, **FAIL_FAST)),
    Case("run.json cut", record_cut("run.json", 1)),
    Case("drill of a rank", drilled),
    Case("NaN", simple("succeeded", {"nan_from": 12}, ("nan",))),
    Case("node gone", node_gone),
)
