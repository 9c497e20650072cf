# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of runs in pods that no drill tries: what the plays and the records say of them, on a real cluster."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import xml.etree.ElementTree as tree

import pytest

from ansible_collections.muster.training.tests.lab.kube import manifests, plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_jobs import API
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, Play, command
from ansible_collections.muster.training.tests.lab.kube_registry import silent_registry
from ansible_collections.muster.training.tests.lab.test_kube_unfollowed import PATTERN, jobset, stepped, stepping
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, Team, kube_lab, team
from ansible_collections.muster.training.tests.support.node_lab import read_lines

__all__ = ["kube_lab", "team"]
MINE = "muster.training/run-id"


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller with the rights of an administrator in the team's namespace."""
    return Controller(kube_lab, team, tmp_path)


LONG_LINES = """
import time
for step in range(1, 31):
    print("y" * 1_000_000)
    print(f"step={step}", flush=True)
    time.sleep(0.3)
"""


def test_steps_beside_long_lines_are_recorded(controller: Controller) -> None:
    """A megabyte a step and rank: kubelets keep ten of them, and the rest is gone before it can be read."""
    job = command("python3", "-c", LONG_LINES, metrics=PATTERN, resources={"cpu": 0.5, "memory": "256Mi"})
    code, output = controller.play("train", job)
    assert code == 0 and "not read" not in output, output
    record, folder = controller.run()
    steps = sorted({line["step"] for line in read_lines(folder / "metrics.jsonl")})
    assert (steps, record["attempts"][-1]["last_step"]) == (list(range(1, 31)), 30), record["detail"]
    for place in (folder / "logs").iterdir():
        text = place.read_text()
        assert text.count("bytes of the line above were left out here") == 30 and "step=30\n" in text


SAYS = r"""
import sys
print("args", sys.argv[1:], "\x1b[2J\x1b]0;a title\x07\x1b[31mred", flush=True)
"""


def test_a_program_gets_its_words_and_a_log_drives_no_terminal(controller: Controller) -> None:
    """torchrun replaces what looks like its own variables; a log is shown on a terminal."""
    (controller.folder / "code").mkdir()
    (controller.folder / "code" / "says.py").write_text(SAYS)
    torch = {"name": "torch", "path": controller.lab.torch, "host_path": controller.lab.torch, "read_only": True}
    job = {
        "name": "says",
        "nodes": 2,
        "code": {"ref": str(controller.folder / "code")},
        "script": "says.py",
        "args": ["$$(HOME)", "$HOME", "$$"],
        "env": {"PYTHONPATH": controller.lab.torch},
        "mounts": [torch],
        "resources": {"cpu": 0.5, "memory": "1Gi"},
    }
    code, output = controller.play("train", job)
    assert code == 0, output
    logs = [place.read_bytes() for place in (controller.run()[1] / "logs").iterdir()]
    assert len(logs) == 2 and all(b"args ['$$(HOME)', '$HOME', '$$']" in log and b"red" in log for log in logs), logs
    assert not any(letter in log for log in (*logs, output.encode()) for letter in (b"\x1b", b"\x07"))


def test_an_image_without_python_is_named(controller: Controller) -> None:
    image = manifests.image_name("pause")
    code, output = controller.play("train", stepping(image=image), limit_s=240)
    assert code != 0 and "Traceback" not in output and "internal error" not in output, output
    assert f"job.image: {image} lacks the program that is to start" in output and "Python 3.10" in output, output
    assert controller.lab.items(f"{API}/{controller.team.namespace}/jobsets") == []


def test_a_registry_that_does_not_answer_ends_a_run_when_the_job_says(controller: Controller) -> None:
    job = stepping(image="localhost:5999/team/trainer:1", placement={"start_wait_s": 20})
    code, output = controller.play("train", job, limit_s=240)
    assert code != 0 and "connection refused" in output, output
    assert "it lasted for more than placement.start_wait_s (20 s)" in output, output
    assert output.count("its image cannot be pulled") <= 3, "said once, and at the end"


def test_a_registry_that_says_nothing_is_named_within_a_minute(controller: Controller) -> None:
    """No warning and no status of the pod says more than that it is being created."""
    lab = controller.lab
    with silent_registry(lab) as name:
        image = f"{name}/team/trainer:1"
        play = controller.start("train", stepping(image=image))
        try:
            assert until(lambda: lab.pods(controller.team.namespace) or play.ended, 60, 0.1), play.output
            began = time.monotonic()
            assert wait_for(play, f"{image}, from the registry {name}, for more than", 90), play.output
            took = time.monotonic() - began
        finally:
            play.stop()
    NOTES.append(f"a silent registry: named {took:.0f} s after its pods were there")
    assert took < 60 and play.output.count("from the registry") == 1, play.output


def test_a_pod_that_a_user_deletes_is_the_cause(controller: Controller) -> None:
    """With its time to end: its ranks end by a signal, as those of a gang that is stopped do."""
    play = controller.start("train", stepping(30))
    try:
        assert until(lambda: stepped(controller, play, 3), 240, 0.2), play.output
        space = controller.team.namespace
        names = sorted(pod["metadata"]["name"] for pod in controller.lab.pods(space, MINE))
        controller.lab.kubectl("delete", "pod", names[0], "-n", space, "--wait=false")
        code, output = play.wait(300)
    finally:
        play.stop()
    record, _ = controller.run()
    causes = [item["cause"] for item in record["attempts"]]
    assert code == 0 and causes == ["pod_deleted", None], (causes, output)
    assert f"{names[0]} was deleted, and not by this collection" in output
    # What the second attempt printed first is its own.
    assert (record["attempts"][1]["first_step"], record["steps_lost"]) == (1, record["attempts"][0]["last_step"])


def kill_tree(pid: int) -> None:
    """Kill a process and what it has started, the youngest first: none of them can tidy up."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    for child in found:
        kill_tree(int(child))
    os.kill(pid, signal.SIGKILL)


def leases(controller: Controller) -> list[Dict]:
    space = controller.team.namespace
    return controller.lab.items(f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases")


def test_the_lease_of_a_killed_follower_goes_with_its_run(controller: Controller) -> None:
    play = controller.start("train", stepping(200))
    assert until(lambda: stepped(controller, play, 2), 240, 0.2), play.output
    kill_tree(play.process.pid)
    play.process.wait()
    (left,) = leases(controller)
    assert [item["kind"] for item in left["metadata"]["ownerReferences"]] == ["JobSet"]
    controller.lab.kubectl("delete", "jobset", "--all", "-n", controller.team.namespace, "--wait")
    assert until(lambda: leases(controller) == [], 60, 0.5), leases(controller)


def member(controller: Controller) -> pathlib.Path:
    """Return the kubeconfig of a service account, whose deletion revokes its token."""
    lab, space = controller.lab, controller.team.namespace
    lab.kubectl("create", "serviceaccount", "member", "-n", space)
    account = f"--serviceaccount={space}:member"
    lab.kubectl("create", "rolebinding", "member", "--clusterrole=cluster-admin", account, "-n", space)
    lab.kubectl("create", "clusterrolebinding", space, "--clusterrole=view", account)
    token = lab.kubectl("create", "token", "member", "-n", space).strip()
    config = json.loads(lab.kubectl("config", "view", "--raw", "-o", "json"))
    config["users"] = [{"name": item["name"], "user": {"token": token}} for item in config["users"]]
    place = controller.folder / "member.kubeconfig"
    place.write_text(json.dumps(config))
    return place


def test_a_credential_that_is_rejected_in_mid_run_says_what_runs_on(controller: Controller) -> None:
    """Which run, where its record is, and what follows it again; the run itself knows nothing of it."""
    lab, job = controller.lab, stepping(400)
    play = controller.start("train", job, muster_kubeconfig=str(member(controller)))
    try:
        assert until(lambda: stepped(controller, play, 2), 240, 0.2), play.output
        run_id = controller.run()[0]["run_id"]
        lab.kubectl("delete", "serviceaccount", "member", "-n", controller.team.namespace)
        # Watches that are open stay open.
        lab.cluster.control_plane("restart")
        assert until(lab.api.is_ready, 60)
        code, output = play.wait(90)
    finally:
        play.stop()
        lab.kubectl("delete", "clusterrolebinding", controller.team.namespace)
    said = f"run {run_id} is no longer followed; it keeps running, and the same command follows it: "
    assert code != 0 and said in output and "was rejected (401)" in output, output
    assert f'"folder": "{controller.run()[1]}"' in output
    # An API server that has just been started serves custom resources last.
    assert until(lambda: lab.items(f"{API}/{controller.team.namespace}/jobsets"), 60, 0.5)
    assert controller.run()[0]["state"] == "running" and not jobset(controller)["status"].get("terminalState")
    again = controller.start("train", job)
    try:
        assert until(lambda: "already running, following it" in again.output or again.ended, 60, 0.2), again.output
        code, output = controller.play("cancel", muster_run_id=run_id)
        assert code == 0, output
    finally:
        again.stop()


PRINTS = """
import os, pathlib, time
place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "rank-" + os.environ["NODE_RANK"])
step = int(place.read_text()) if place.exists() else 0
while step < 90:
    step += 1
    if os.environ["NODE_RANK"] == "0":
        print(f"step={step}", flush=True)
    if step % 20 == 0:
        place.write_text(str(step))
    time.sleep(0.2)
"""


def printing(controller: Controller, interval: int | None) -> Dict:
    """Return a job that saves, and only prints its steps."""
    folder = controller.team.namespace
    mounts = [{"name": "shared", "path": "/s", "host_path": plan.SHARED}]
    checkpoints = {"path": f"/s/{folder}", "grace_s": 5, **({"interval_steps": interval} if interval else {})}
    return command("python3", "-u", "-c", PRINTS, metrics=PATTERN, mounts=mounts, checkpoints=checkpoints)


def read_junit(controller: Controller, run_id: str) -> dict[str, bool]:
    """Return by name whether a check of the run's report passed."""
    (place,) = controller.run(run_id)[1].rglob("*.xml")
    return {case.attrib["name"]: case.find("failure") is None for case in tree.parse(place).iter("testcase")}


def test_a_drill_in_pods_follows_the_rules_of_the_hosts(controller: Controller) -> None:
    """Proven by the declared interval; one judgement for play, report and JUnit; one that kills nothing fails."""
    drill = {"target": "agent", "rank": 1, "at_step": 30}
    code, output = controller.play("drill", printing(controller, None), muster_drill=drill)
    assert code != 0 and "nothing could be proven" in output, output
    assert controller.lab.items(f"{API}/{controller.team.namespace}/jobsets") == []
    job = printing(controller, 20)
    code, output = controller.play("drill", job, muster_drill=drill, muster_run_id="drilled")
    assert code == 0 and "Run drilled resumed in" in output, output
    record, _ = controller.run("drilled")
    killed, resumed = record["attempts"]
    lost = killed["last_step"] - resumed["first_step"] + 1
    assert killed["last_step"] >= 30 and (resumed["first_step"] - 1) % 20 == 0, record["attempts"]
    assert (record["drill"]["resumed"], record["drill"]["steps_lost"]) == (True, lost) and 0 <= lost <= 21, record
    assert [item["cause"] for item in record["attempts"]] == ["drill", None]
    code, output = controller.play("report", muster_run_id="drilled")
    assert code == 0 and read_junit(controller, "drilled")["resume-1"] is True, output
    # The run has succeeded: another one is drilled, which ends before the fault is due.
    late = {**drill, "at_step": 5000}
    code, output = controller.play("drill", job, muster_drill=late, muster_run_id="drilled")
    assert code != 0 and "nothing was killed, the run ended before step 5000" in output, output
    assert "drill" not in controller.run("drilled-drill-1")[0]
    assert controller.run("drilled")[0]["drill"]["resumed"] is True, "the run that had succeeded is as it was"


def wait_for(play: Play, text: str, limit_s: float = 120) -> bool:
    """Wait until a play says something or has ended; return whether it said it."""
    until(lambda: text in play.output or play.ended, limit_s, 0.2)
    return text in play.output


def test_a_node_s_disruption_by_memory_is_a_lost_pod(controller: Controller) -> None:
    """As a kubelet writes it that evicts a pod because its node runs out of memory."""
    play = controller.start("train", stepping(40))
    try:
        assert until(lambda: stepped(controller, play, 3), 240, 0.2), play.output
        space, words = controller.team.namespace, "The node was low on resource: memory."
        pod = min(controller.lab.pods(space, MINE), key=lambda item: item["metadata"]["name"])
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": words}
        body = {"status": {"phase": "Failed", "reason": "Evicted", "message": words, "conditions": [taken]}}
        path = f"/api/v1/namespaces/{space}/pods/{pod['metadata']['name']}/status"
        assert controller.lab.api.ask("PATCH", path, body, "application/strategic-merge-patch+json")[0] == 200
        assert wait_for(play, "was evicted: TerminationByKubelet"), play.output
    finally:
        play.stop()


def test_a_lost_node_takes_none_of_the_jobset_s_restarts(controller: Controller) -> None:
    """Its pods end by a disruption, which the JobSet's failure policy does not count: none are allowed here."""
    lab, lost = controller.lab, controller.lab.nodes[1]
    job = stepping(60, restart={"max_crashes": 0, "max_lost_nodes": 1})
    play = controller.start("train", job)
    try:
        assert until(lambda: stepped(controller, play, 3), 240, 0.2), play.output
        lab.fault("kill", lost)
        assert wait_for(play, "was taken away", 240) or restarts(controller)[0] == 1, play.output
        assert until(lambda: restarts(controller)[0] == 1 or play.ended, 240, 0.5), play.output
        counted = restarts(controller)
        lab.fault("start", lost)
        code, output = play.wait(300)
    finally:
        lab.fault("start", lost)
        play.stop()
    record, _ = controller.run()
    assert code == 0 and [item["cause"] for item in record["attempts"]] == ["node_lost", None], output
    assert counted == (1, 0), "restarts, and those that count towards maxRestarts"


def restarts(controller: Controller) -> tuple[int, int]:
    """Return how often the JobSet has restarted its gang, and how often towards its limit."""
    status = jobset(controller).get("status", {})
    return status.get("restarts", 0), status.get("restartsCountTowardsMax", 0)
