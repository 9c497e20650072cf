# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three servers with embedded etcd: from one, through power cuts and a training job, to two and back to bare machines.

The members of etcd are real; K3S_BINARY names a real K3s, without it the stand-in adds, promotes and removes them. The
tests build on each other, in their order.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.lab import nodes
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences
from ansible_collections.muster.training.tests.lab.k3s.site import ROOT, open_site
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

SECOND, THIRD = "lab-2", "lab-3"
SERVERS = [SERVER, SECOND, THIRD]
# Each that joins asks the first one for its token; requests and module runs otherwise, first and again.
FIRST, AGAIN = 6, 2
SPARE = "example.com/spare=yes:NoSchedule"
TOKEN = "/etc/rancher/k3s/muster-token"
# The example's program, of which all ranks wait after a step until a file is there.
HELD_AFTER, GO = 20, "go"
HELD = f"""
import pathlib, runpy, runtime, time
made, keep_pace = 0, runtime.keep_pace
def hold(*words):
    global made
    made += 1
    while made == {HELD_AFTER} and not pathlib.Path("{nodes.SHARED}/{GO}").exists():
        time.sleep(0.05)
    return keep_pace(*words)
runtime.keep_pace = hold
runpy.run_path(str(pathlib.Path(__file__).with_name("train.py")), run_name="__main__")
"""


@pytest.fixture(scope="module")
def operator() -> t.Iterator[Operator]:
    """Three machines, booted, all of them servers; the third takes no pods of jobs."""
    with open_site(3) as made:
        hosts = {name: {**made.hosts[name], "muster_k3s_role": "server"} for name in SERVERS}
        made.hosts = {**hosts, THIRD: {**hosts[THIRD], "k3s_taints": [SPARE]}}
        program = made.folder / "program"
        shutil.copytree(ROOT / "examples" / "char_lm", program)
        (program / "held.py").write_text(HELD)
        job = made.values["muster_job"]
        shared = {"name": "shared", "path": nodes.SHARED, "host_path": nodes.SHARED}
        own = {"nodes": 2, "code": {"ref": str(program)}, "script": "held.py", "mounts": [*job["mounts"], shared]}
        made.values["muster_job"] = {**job, **own}
        yield made


@pytest.fixture(scope="module", autouse=True)
def before(operator: Operator) -> dict[str, list[str]]:
    """What the machines were before anything was done."""
    return {name: operator.lab.state(name) for name in SERVERS}


def nodes_of(operator: Operator) -> dict[str, dict[str, t.Any]]:
    return {node["metadata"]["name"]: node for node in operator.items("nodes")}


def conditions(operator: Operator, kind: str) -> dict[str, str]:
    """Return by node the status of a condition."""
    return {
        name: item["status"]
        for name, node in nodes_of(operator).items()
        for item in node["status"]["conditions"]
        if item["type"] == kind
    }


def are_ready(operator: Operator) -> bool:
    """Return whether the API answers and tells that all servers are ready."""
    try:
        return conditions(operator, "Ready") == dict.fromkeys(SERVERS, "True")
    except (AssertionError, subprocess.TimeoutExpired):
        return False


def named_server(operator: Operator) -> str:
    """Return the host that the kubeconfig names."""
    url = yaml.safe_load((operator.state / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    return next(node.name for node in operator.lab.nodes if f"//{node.address}:" in url)


def count_requests(operator: Operator) -> dict[str, int]:
    return {name: operator.lab.requests(name) for name in SERVERS}


def test_servers_that_cannot_have_one_etcd_are_refused_and_nothing_is_changed(
    operator: Operator, before: dict[str, list[str]]
) -> None:
    lan = {name: {"muster_node": {"site": site}} for name, site in zip(SERVERS, ("home", "home", "cloud"), strict=True)}
    backend = {THIRD: {"k3s_config": {"flannel-backend": "host-gw"}}}
    for hosts, said in (
        ({THIRD: {"muster_k3s_role": "agent"}}, "2 servers (lab-1, lab-2) have no majority"),
        (lan, "the servers are on different sites: lab-1 on home; lab-2 on home; lab-3 on cloud"),
        (backend, "flannel-backend: differs between the servers lab-1 and lab-3"),
    ):
        result = operator.play("cluster", hosts=hosts)
        assert result.code != 0 and result.changed == 0 and len(result.errors) == 1, result.output
        assert said in result.errors[0], result.output
    assert find_differences(operator, before) == []


def test_one_server_becomes_three_and_keeps_what_it_had(operator: Operator) -> None:
    alone = operator.play("cluster", muster_node_hosts=SERVER)
    assert alone.code == 0, alone.output
    assert operator.lab.run(SERVER, "test", "-e", "/var/lib/rancher/k3s/server/db/etcd").returncode != 0
    operator.kubectl("create", "configmap", "kept", "--from-literal=key=value")
    asked = count_requests(operator)
    result = operator.play("cluster")
    assert result.code == 0, result.output
    first = {name: count - asked[name] for name, count in count_requests(operator).items()}
    assert max(first[SECOND], first[THIRD]) <= FIRST and first[SERVER] <= FIRST + 2, first
    assert conditions(operator, "Ready") == conditions(operator, "EtcdIsVoter") == dict.fromkeys(SERVERS, "True")
    assert json.loads(operator.kubectl("get", "configmap", "kept", "-o", "json"))["data"] == {"key": "value"}
    NOTES.append(f"from one server to three: {result.seconds:.1f} s, requests {first}, load {os.getloadavg()[0]:.1f}")


def test_the_servers_token_is_for_root_and_in_the_ledger_while_a_server_has_it(operator: Operator) -> None:
    for name in (SECOND, THIRD):
        assert operator.lab.ask(name, "stat", "-c", "%a %U", TOKEN) == "600 root"
        lines = [event for event, resource, own in operator.ledger() if (resource, own) == ("k3s_token", name)]
        assert lines == ["intent", "created"]
    secret = operator.lab.ask(SECOND, "cat", TOKEN).rpartition(":")[2]
    texts = [place.read_text(errors="replace") for place in operator.state.rglob("*") if place.is_file()]
    assert secret and not [text for text in texts if secret in text]


def test_again_nothing_is_changed_or_restarted(operator: Operator) -> None:
    started, asked = operator.lab.started(), count_requests(operator)
    result = operator.play("cluster")
    assert result.code == 0 and result.changed == 0, result.output
    assert operator.lab.started() == started and named_server(operator) == SERVER
    second = {name: count - asked[name] for name, count in count_requests(operator).items()}
    assert max(second.values()) <= AGAIN, second
    checked = operator.play("cluster", "--check")
    assert checked.code == 0 and checked.changed == 0, checked.output


def test_the_server_that_the_kubeconfig_names_dies_and_another_one_is_named(operator: Operator) -> None:
    operator.lab.power_off(SERVER)
    try:
        gone = operator.play("cluster")
        assert gone.code != 0 and "lab-1 is gone of the servers, lab-2, lab-3 run" in gone.errors[0], gone.output
        assert "--limit 'all:!lab-1'" in gone.errors[0], gone.errors
        without = operator.play("cluster", "--limit", "all:!lab-1", muster_gang_scheduling=False)
        assert without.code == 0, without.output
        assert named_server(operator) == SECOND
        eventually(lambda: conditions(operator, "Ready")[SERVER] != "True", "the control plane to miss it", 120)
    finally:
        operator.lab.plug_in(SERVER)
    eventually(lambda: are_ready(operator), "all servers to be ready", 180)
    back = operator.play("cluster")
    assert back.code == 0 and back.changed == 0, back.output


@pytest.mark.torch
def test_a_job_trains_on_while_a_server_loses_its_power(operator: Operator) -> None:
    play = operator.start("site")
    runs = operator.state / "runs"

    def steps() -> list[dict[str, t.Any]]:
        texts = [place.read_text() for place in runs.glob("*/metrics.jsonl")]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        return [line for line in lines if "step" in line]

    eventually(lambda: bool(steps()) or play.process.poll() is not None, "the job's first steps", 400)
    assert play.process.poll() is None, play.output
    operator.lab.power_off(THIRD)
    cut_at = time.time()
    (operator.lab.shared / GO).touch()
    try:
        result = play.wait(480)
        assert result.code == 0, result.output
        (folder,) = runs.iterdir()
        record = json.loads((folder / "run.json").read_text())
        assert record["outcome"] == "succeeded" and record["steps_lost"] == 0, record
        after = [line["step"] for line in steps() if line["at"] > cut_at]
        # With a step that all ranks were at when the power went.
        assert after == list(range(HELD_AFTER, 51)), after
        assert len(nodes_of(operator)) == 3
        gone = operator.play("site")
        assert gone.code != 0 and any("lab-3 is gone of the servers" in line for line in gone.errors), gone.output
    finally:
        operator.lab.plug_in(THIRD)
    eventually(lambda: are_ready(operator), "the server to be back", 180)
    again = operator.play("site")
    assert again.code == 0 and again.changed == 0, again.output
    NOTES.append(f"three servers, one cut while a job trains: site {result.seconds:.0f} s, again {again.seconds:.1f} s")


def test_a_server_that_the_majority_needs_is_not_removed(operator: Operator) -> None:
    members = sorted(nodes_of(operator))
    operator.lab.power_off(SECOND)
    try:
        result = operator.play("cluster_absent", "--limit", THIRD)
        assert result.code != 0 and result.changed == 0, result.output
        said = "lab-3: of 3 servers lab-2 does not answer; without lab-3 the rest of etcd has no majority"
        assert said in result.errors[0] and "Bring lab-2 back first" in result.errors[0], result.errors
        operator.lab.power_off(SERVER)
        two = operator.play("cluster_absent", "--limit", THIRD)
        assert two.code != 0 and "of 3 servers lab-1, lab-2 do not answer" in two.errors[0], two.output
    finally:
        operator.lab.plug_in(SERVER)
        operator.lab.plug_in(SECOND)
    eventually(lambda: are_ready(operator), "all servers to be ready", 180)
    assert sorted(nodes_of(operator)) == members


def test_a_server_leaves_etcd_first_and_comes_back(operator: Operator, before: dict[str, list[str]]) -> None:
    started = operator.lab.started()
    left = operator.play("remove_nodes", muster_remove_nodes=THIRD)
    assert left.code == 0, left.output
    assert "2 servers are left (lab-1, lab-2)" in left.output
    assert find_differences(operator, before, THIRD) == []
    assert sorted(nodes_of(operator)) == [SERVER, SECOND] and operator.lab.started()[:2] == started[:2]
    assert ("verified", "k3s_token", THIRD) in operator.ledger()
    # Of the two members that are left, both have to be there: with a third one etcd would still answer.
    operator.lab.power_off(SECOND)
    try:
        eventually(lambda: asked_in_vain(operator), "etcd to have no majority", 60)
    finally:
        operator.lab.plug_in(SECOND)
    eventually(lambda: not asked_in_vain(operator), "etcd to have a majority again", 180)
    back = operator.play("cluster")
    assert back.code == 0, back.output
    assert conditions(operator, "EtcdIsVoter") == dict.fromkeys(SERVERS, "True")


def asked_in_vain(operator: Operator) -> bool:
    """Return whether the first server cannot read what etcd has agreed on."""
    words = ("k3s", "kubectl", "--request-timeout=3s", "get", "--raw", "/api/v1/namespaces/default")
    return operator.lab.run(SERVER, *words).returncode != 0


def test_all_machines_lose_their_power_and_are_one_cluster_again(operator: Operator) -> None:
    for name in SERVERS:
        operator.lab.power_off(name)
    for name in SERVERS:
        operator.lab.plug_in(name)
    result = operator.play("cluster")
    assert result.code == 0, result.output
    # Stopped everywhere by hand: no server alone would become ready.
    for name in SERVERS:
        operator.lab.ask(name, "systemctl", "stop", "k3s")
    started = operator.play("cluster")
    assert started.code == 0, started.output
    again = operator.play("cluster")
    assert again.code == 0 and again.changed == 0, again.output


def test_removed_the_machines_are_as_they_were_found(operator: Operator, before: dict[str, list[str]]) -> None:
    result = operator.play("cluster_absent")
    assert result.code == 0, result.output
    assert find_differences(operator, before) == []
    assert not (operator.state / "kubeconfig").exists()
    opened = [line for line in operator.ledger() if line[1] == "k3s_token"]
    assert [event for event, _resource, _name in opened].count("verified") == len(opened) // 4
    again = operator.play("cluster_absent")
    assert again.code == 0 and again.changed == 0, again.output
