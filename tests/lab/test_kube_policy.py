# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network policies that hold: a job passes where everything is denied, by its own policy, and strangers do not get in."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube import policies
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, Play, command, training
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, not_run

DENY = "deny"
# argv: address:port …; says which of them it reaches.
VISIT = """
import socket, sys
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        print("reached", target)
    except OSError as exc:
        print("refused", target, exc)
"""
# Listens, as a rank does, until a file says that it has been looked at.
LISTEN = """
import os, pathlib, socket, sys, time
held = socket.create_server(("", 5555))
end = time.monotonic() + 120
while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < end: time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def enforced(kube_lab: KubeLab) -> t.Iterator[KubeLab]:
    """The cluster with an engine that makes network policies hold; gone at the end where it was not there before."""
    before = policies.NAME in kube_lab.cluster.up_record.components
    try:
        kube_lab.cluster.install([policies.NAME])
    except LabError as error:
        not_run(str(error))
    yield kube_lab
    if not before:
        kube_lab.cluster.uninstall_policies()


@pytest.fixture
def controller(enforced: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller in a team's namespace."""
    return Controller(enforced, team, tmp_path)


@pytest.fixture
def foreign(enforced: KubeLab) -> t.Iterator[Team]:
    """Another team, without any policy of its own."""
    with enforced.namespace(cpu="1") as made:
        yield made


def policy_path(team: Team) -> str:
    """Return the path of a namespace's policies."""
    return f"/apis/networking.k8s.io/v1/namespaces/{team.namespace}/networkpolicies"


def deny(lab: KubeLab, team: Team, *kinds: str) -> None:
    """Forbid all pods of a namespace what no other policy allows them."""
    meta = {"name": DENY, "namespace": team.namespace}
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta}
    spec = {"podSelector": {}, "policyTypes": list(kinds)}
    assert lab.api.ask("POST", policy_path(team), {**body, "spec": spec})[0] == 201


def take_policies(lab: KubeLab, team: Team) -> list[str]:
    """Take the policies away that came with a job; return their names."""
    names = [item["metadata"]["name"] for item in lab.items(policy_path(team))]
    own = [name for name in names if name != DENY]
    for name in own:
        lab.api.ask("DELETE", f"{policy_path(team)}/{name}")
    return own


def gang(lab: KubeLab, team: Team) -> list[Dict]:
    """Return the pods of the job itself that run, without its probe's."""
    pods = [pod for pod in lab.pods(team.namespace) if "-probe-" not in pod["metadata"]["name"]]
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]


def listening(lab: KubeLab, pod: Dict) -> list[str]:
    """Return what a pod listens at, as address:port: all sockets that are not for itself alone."""
    meta = pod["metadata"]
    words = ("exec", "-n", meta["namespace"], meta["name"], "--", "cat", "/proc/net/tcp", "/proc/net/tcp6")
    found = set()
    for line in lab.kubectl(*words).splitlines():
        _number, local, _remote, state, *_rest = line.split()
        address, _, port = local.rpartition(":")
        if state == "0A" and address != "0100007F":
            found.add(int(port, 16))
    return [f"{pod['status']['podIP']}:{port}" for port in sorted(found)]


def visits(lab: KubeLab, team: Team, targets: list[str]) -> dict[str, list[str]]:
    """Send a pod of a team from every node to all targets; return what they found by node: reached or refused."""
    container = {"name": "visitor", "image": lab.image, "command": ["python3", "-c", VISIT, *targets]}
    for node in lab.nodes:
        spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
        meta = {"name": f"visitor-{node}", "namespace": team.namespace}
        lab.cluster.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}])
    words = ("wait", "pod", "--all", "-n", team.namespace, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
    lab.kubectl(*words)
    said = {node: lab.kubectl("logs", f"visitor-{node}", "-n", team.namespace) for node in lab.nodes}
    lab.kubectl("delete", "pod", "--all", "-n", team.namespace, "--force", "--grace-period=0")
    return {node: [line.split()[0] for line in text.splitlines()] for node, text in said.items()}


def everywhere(lab: KubeLab, targets: list[str], word: str) -> dict[str, list[str]]:
    """Return what visitors say when they all fare the same."""
    return {node: [word] * len(targets) for node in lab.nodes}


def both_listen(lab: KubeLab, team: Team, play: Play) -> list[str]:
    """Wait until both pods of a job listen; return at what."""
    found: list[list[str]] = []

    def look() -> bool:
        found[:] = [listening(lab, pod) for pod in gang(lab, team)]
        return play.ended or (len(found) == 2 and all(found))

    assert until(look, 120, 1) and not play.ended, play.output
    return [target for targets in found for target in targets]


@pytest.mark.torch
def test_a_gang_trains_to_its_end_where_all_is_denied(controller: Controller, foreign: Team) -> None:
    """DDP over gloo in two pods: name, rendezvous and every port between them by the job's own policy alone."""
    lab, team = controller.lab, controller.team
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    deny(lab, team, "Ingress", "Egress")
    play = controller.start("train", training(lab, team.namespace, 400, 0.1))
    try:
        targets = both_listen(lab, team, play)
        assert visits(lab, foreign, targets) == everywhere(lab, targets, "refused")
        assert len(gang(lab, team)) == 2, "the visits came too late"
        code, output = play.wait()
    finally:
        play.stop()
    assert code == 0, output
    record, _folder = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert len(record["attempts"]) == 1


def test_strangers_reach_a_job_only_when_its_policy_is_gone(controller: Controller, foreign: Team) -> None:
    """The same visits with and without the policy: it is the policy that keeps them out."""
    lab, team = controller.lab, controller.team
    seen = pathlib.PurePath("/shared") / f"{team.namespace}-seen"
    mounts = [{"name": "shared", "path": "/shared", "host_path": "/opt/lab/shared"}]
    play = controller.start("train", command("python3", "-c", LISTEN, str(seen), mounts=mounts))
    try:
        targets = both_listen(lab, team, play)
        assert visits(lab, foreign, targets) == everywhere(lab, targets, "refused")
        assert len(gang(lab, team)) == 2, "the visits came too late"
        assert take_policies(lab, team)
        reached = everywhere(lab, targets, "reached")
        assert until(lambda: visits(lab, foreign, targets) == reached, 60), "it was not the policy that kept them out"
        (lab.cluster.folder / "shared" / seen.name).touch()
        code, output = play.wait()
    finally:
        play.stop()
    assert code == 0, output


@pytest.mark.parametrize("kind", ["Ingress", "Egress"])
def test_a_gang_passes_where_one_direction_is_denied(kind: str, controller: Controller) -> None:
    deny(controller.lab, controller.team, kind)
    code, output = controller.play("train", command("sh", "-c", "getent hosts $MASTER_ADDR"))
    assert code == 0, output
    assert controller.run()[0]["world_size"] == {"asked": 2, "seen": 2}


def test_without_its_policy_the_probe_says_what_is_in_the_way(controller: Controller) -> None:
    """The control: the engine does hold, and what a user reads then names the place to look at."""
    lab, team = controller.lab, controller.team
    deny(lab, team, "Ingress", "Egress")
    play = controller.start("train", command("true"))
    try:
        assert until(lambda: take_policies(lab, team) or play.ended, 60, 0.05)
        code, output = play.wait()
    finally:
        play.stop()
    assert code != 0 and "Traceback" not in output, output
    assert f"pods of the namespace {team.namespace} do not reach each other: " in output, output
    assert "Check the network policies of the namespace" in output
    assert not list(controller.folder.glob("state/*/runs/*")) and not gang(lab, team)
