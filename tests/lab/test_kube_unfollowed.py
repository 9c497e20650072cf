# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in pods whose follower, objects or rights go: what their records and the plays say, on a real cluster."""

from __future__ import annotations

import datetime
import json
import pathlib

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_jobs import API
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, Play, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, team
from ansible_collections.muster.training.tests.support.node_lab import read_lines

__all__ = ["kube_lab", "team"]
STEPS = 40
PATTERN = {"step_pattern": r"step=(?P<step>\d+)"}


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller with the rights of an administrator in the team's namespace."""
    return Controller(kube_lab, team, tmp_path)


def stepping(steps: int = STEPS, pace_s: float = 0.4, **job: object) -> Dict:
    """Return a job that prints its steps, slowly enough to be cut off from its follower."""
    loop = f"i=0; while [ $i -lt {steps} ]; do i=$((i+1)); echo step=$i; sleep {pace_s}; done"
    return command("sh", "-c", loop, metrics=PATTERN, **job)


def stepped(controller: Controller, play: Play, step: int) -> bool:
    """Return whether the run has come to a step, as far as its follower has recorded."""
    for place in (controller.folder / "state").glob("*/runs/*/metrics.jsonl"):
        return any(line["step"] >= step for line in read_lines(place))
    return play.ended


def jobset(controller: Controller) -> Dict:
    (found,) = controller.lab.items(f"{API}/{controller.team.namespace}/jobsets")
    return found


def completed_at(controller: Controller) -> str:
    conditions = jobset(controller).get("status", {}).get("conditions", [])
    ends = [item["lastTransitionTime"] for item in conditions if item["type"] == "Completed"]
    return str(ends[0]) if ends else ""


def seconds(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp).timestamp()


def test_a_run_that_ended_while_nobody_followed_is_recorded_whole(controller: Controller) -> None:
    """Its follower is killed in mid-run; the same command reads what its pods printed, and when they did."""
    play = controller.start("train", stepping())
    assert until(lambda: stepped(controller, play, 3), 120, 0.2), play.output
    play.process.kill()
    play.process.wait()
    assert until(lambda: completed_at(controller), 120, 0.5), jobset(controller)
    code, output = controller.play("train", stepping())
    assert code == 0, output
    record, folder = controller.run()
    steps = read_lines(folder / "metrics.jsonl")
    assert (record["outcome"], record["attempts"][-1]["last_step"]) == ("succeeded", STEPS), record
    assert sorted({line["step"] for line in steps}) == list(range(1, STEPS + 1))
    logs = "".join(place.read_text() for place in (folder / "logs").iterdir())
    assert logs.count(f"step={STEPS}\n") == 2, "both ranks' logs were read to their ends"
    assert abs(seconds(record["ended_at"]) - seconds(completed_at(controller))) <= 3, record["ended_at"]
    # They were printed at a pace, and read in a burst.
    by_step = {line["step"]: line["at"] for line in steps}
    assert by_step[STEPS] - by_step[STEPS - 10] >= 2.5
    assert len(record["attempts"][-1]["rank_list"]) == 2 and "not read" not in record["detail"]


def foreigner(lab: KubeLab, team: Team, folder: pathlib.Path) -> pathlib.Path:
    """Return the kubeconfig of somebody who may read the namespace and change nothing in it."""
    lab.kubectl("create", "serviceaccount", "reader", "-n", team.namespace)
    lab.kubectl("create", "rolebinding", "reads", "--clusterrole=view", f"--serviceaccount={team.namespace}:reader",
                "-n", team.namespace)  # fmt: skip
    token = lab.kubectl("create", "token", "reader", "-n", team.namespace).strip()
    config = json.loads(lab.kubectl("config", "view", "--raw", "-o", "json"))
    config["users"] = [{"name": item["name"], "user": {"token": token}} for item in config["users"]]
    place = folder / "reader.kubeconfig"
    place.write_text(json.dumps(config))
    return place


def test_only_what_was_cancelled_is_recorded_so(controller: Controller) -> None:
    """A cancel without the right leaves the run and its record alone; one with it ends its follower's play, failed."""
    lab, team = controller.lab, controller.team
    play = controller.start("train", stepping(400))
    try:
        assert until(lambda: stepped(controller, play, 2), 120, 0.2), play.output
        run_id = controller.run()[0]["run_id"]
        kubeconfig = str(foreigner(lab, team, controller.folder))
        code, output = controller.play("cancel", muster_run_id=run_id, muster_kubeconfig=kubeconfig)
        assert code != 0 and f"run {run_id} was not cancelled" in output, output
        record, folder = controller.run()
        assert record["state"] == "running" and record["outcome"] is None
        assert not any(line["kind"] == "cancelled" for line in read_lines(folder / "events.jsonl"))
        assert not jobset(controller)["metadata"].get("deletionTimestamp")
        code, output = controller.play("cancel", muster_run_id=run_id)
        assert code == 0, output
        code, output = play.wait(60)
    finally:
        play.stop()
    record, _ = controller.run()
    assert code != 0 and (record["outcome"], record["cause"]) == ("cancelled", "cancelled"), output
    assert lab.pods(team.namespace) == []


def test_what_somebody_deletes_of_a_run_is_made_again(controller: Controller) -> None:
    """Its ConfigMaps go in mid-run, and then a pod: the next attempt mounts them again and ends the job."""
    lab, space = controller.lab, controller.team.namespace
    play = controller.start("train", stepping())
    try:
        assert until(lambda: stepped(controller, play, 3), 120, 0.2), play.output
        mine = "muster.training/run-id"
        lab.kubectl("delete", "configmap", "-n", space, "-l", mine, "--wait")
        pods = [pod["metadata"]["name"] for pod in lab.pods(space, mine)]
        lab.kubectl("delete", "pod", sorted(pods)[0], "-n", space, "--force", "--grace-period=0")
        code, output = play.wait(240)
    finally:
        play.stop()
    record, _ = controller.run()
    assert code == 0 and record["outcome"] == "succeeded", output
    assert "of the run was deleted: it was created again" in output
    assert [item["cause"] for item in record["attempts"]] == ["pod_deleted", None], record["attempts"]


def test_a_job_that_never_fits_ends(kube_lab: KubeLab, tmp_path: pathlib.Path) -> None:
    with kube_lab.namespace(cpu="200m", memory="8Gi") as team:
        controller = Controller(kube_lab, team, tmp_path)
        big = command("true", resources={"cpu": 0.3, "memory": "64Mi"})
        code, output = controller.play("train", big, limit_s=120)
        record, _ = controller.run()
        assert code != 0 and (record["outcome"], record["cause"]) == ("failed", "queue"), output
        assert "will never fit: 0.6 CPU asked, the queue has 0.2" in output, output
        assert kube_lab.items(f"{API}/{team.namespace}/jobsets") == []


def test_a_lost_node_that_nobody_saw_is_the_cause(controller: Controller) -> None:
    """A rank elsewhere fails before the cluster notices the loss, and nobody follows: the engine takes it for a crash."""
    lab, space = controller.lab, controller.team.namespace
    signs, lost = lab.cluster.folder / "shared" / space, lab.nodes[1]
    signs.mkdir()
    says = "while sleep 0.2; do test -e /s/end && exit 0; test -e /s/fail-$NODE_RANK && exit 1; done"
    mounts = [{"name": "signs", "path": "/s", "host_path": f"{plan.SHARED}/{space}"}]
    # The loss takes no crash of the job, of which it may have none.
    job = command("sh", "-c", says, mounts=mounts, restart={"max_crashes": 0, "max_lost_nodes": 2})
    play = controller.start("train", job)
    try:
        assert until(lambda: "ranks 2/2" in play.output or play.ended, 120, 0.2) and not play.ended, play.output
        play.process.kill()
        play.process.wait()
        begun = [line for line in read_lines(controller.run()[1] / "events.jsonl") if line["kind"] == "worker_started"]
        (left,) = [line["rank"] for line in begun if line["node"] != lost]
        lab.fault("kill", lost)
        (signs / f"fail-{left}").touch()
        # Its Job has failed by this pod; it waits for the other one, of which the cluster knows nothing yet.
        assert until(lambda: "Failed" in phases(controller), 60, 0.2), phases(controller)
        (signs / f"fail-{left}").unlink()
        noticed = f"/api/v1/namespaces/{space}/events?fieldSelector=reason%3DNodeNotReady"
        assert until(lambda: lab.items(noticed), 120, 0.5)
    finally:
        lab.fault("start", lost)
        play.stop()
    assert until(lambda: running(controller) == 2, 180, 0.5), lab.pods(space)
    assert jobset(controller)["status"]["restartsCountTowardsMax"] == 1, "the engine took it for a crash"
    again = controller.start("train", job)
    try:
        assert until(lambda: "ranks 2/2" in again.output or again.ended, 60, 0.2), again.output
        (signs / "end").touch()
        code, output = again.wait(120)
    finally:
        again.stop()
    record, folder = controller.run()
    assert code == 0 and record["outcome"] == "succeeded", output
    attempts = [(item["cause"], item["node"]) for item in record["attempts"]]
    assert attempts == [("node_lost", lost), (None, None)], read_lines(folder / "events.jsonl")


def phases(controller: Controller) -> list[str]:
    """Return the phases of the gang's pods."""
    pods = controller.lab.pods(controller.team.namespace, "muster.training/run-id")
    return [str(pod["status"].get("phase")) for pod in pods]


def running(controller: Controller) -> int:
    """Return how many pods of the gang run after its first restart."""
    pods = controller.lab.pods(controller.team.namespace, "jobset.sigs.k8s.io/restart-attempt%3D1")
    return sum(pod["status"].get("phase") == "Running" for pod in pods)
