# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slice: bare machines with GPUs, one playbook, a job that trained in pods and resumed, and the machines as they were.

K3S_BINARY names a real K3s; without it the stand-in is installed. ``gpu_site.py`` says what of the GPUs is real.
"""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.version import USER_AGENT
from ansible_collections.muster.training.tests.lab.k3s import gpu_site, machines
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import State, compare
from ansible_collections.muster.training.tests.lab.k3s.site import INTERVAL, PHASES
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.test_molecule import APT
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

ISLAND = "muster.training/island"


@pytest.fixture(scope="module")
def operator() -> t.Iterator[Operator]:
    """Two machines, booted; the module fails when anything of them is left at its end."""
    with gpu_site.open_gpu_site() as made:
        gpu_site.plug_in(made)
        yield made


def state(operator: Operator, *names: str) -> dict[str, list[str]]:
    """What machines are, without apt's own files, and the packages that they have."""
    lab, found = operator.lab, {}
    for name in names or (SERVER, AGENT):
        packages = lab.ask(name, "dpkg-query", "--show").splitlines()
        found[name] = [line for line in lab.state(name) if not APT.match(line)] + packages
    return found


def find_differences(operator: Operator, before: State, *names: str) -> list[str]:
    """What is other than before on machines, line by line."""
    return compare(before, state(operator, *names))


def list_devices(operator: Operator, seen: dict[str, list[str]]) -> bool:
    """Add by name of a running pod of the gang the GPUs that it sees; whether there are two."""
    if (operator.state / "kubeconfig").exists():
        # The API server is not there yet, or the pod has ended meanwhile.
        with contextlib.suppress(AssertionError):
            for pod in operator.items("pods", "-n", "training", "-l", "muster.training/role=node"):
                name = pod["metadata"]["name"]
                if pod["status"]["phase"] == "Running" and name not in seen:
                    look = ("--", "sh", "-c", "ls /dev | grep nvidia[0-9]")
                    seen[name] = operator.kubectl("exec", "-n", "training", name, *look).split()
    return len(seen) >= 2


def list_gpus(operator: Operator) -> tuple[list[str], list[str]]:
    """Return how many GPUs the nodes offer, and how many the queues may give to jobs."""
    name = "nvidia.com/gpu"
    offered = [node["status"]["allocatable"].get(name, "none") for node in operator.items("nodes")]
    groups = [
        group for item in operator.items("clusterqueues.kueue.x-k8s.io") for group in item["spec"]["resourceGroups"]
    ]
    resources = [entry for group in groups for flavor in group["flavors"] for entry in flavor["resources"]]
    return offered, [str(entry["nominalQuota"]) for entry in resources if entry["name"] == name]


def written(operator: Operator) -> list[str]:
    """Return what the collection has written to the API, from the audit log: one line for each request."""
    text = operator.lab.ask(SERVER, "cat", machines.AUDIT_LOG)
    events = [json.loads(line) for line in text.splitlines()]
    ours = [event for event in events if event.get("userAgent", "").startswith(USER_AGENT.partition("/")[0])]
    return [f"{event['verb']} {event['requestURI']}" for event in ours if "dryRun=All" not in event["requestURI"]]


def pods_of(operator: Operator) -> list[tuple[str, int]]:
    """Return the pods of all namespaces with how often their containers were started again."""
    return sorted(
        (pod["metadata"]["uid"], sum(item["restartCount"] for item in pod["status"].get("containerStatuses", [])))
        for pod in operator.items("pods", "-A")
        if pod["status"]["phase"] == "Running"
    )


def test_a_check_on_bare_machines_predicts_and_changes_nothing(operator: Operator) -> None:
    before = state(operator)
    result = operator.play("site", "--check")
    assert result.code == 0 and result.recap[SERVER]["changed"] > 0 and result.recap[AGENT]["changed"] > 0, (
        result.output
    )
    assert find_differences(operator, before) == []
    assert not operator.lock.exists() and not (operator.state / "runs").exists()


@pytest.mark.torch
def test_from_bare_machines_to_a_trained_job_and_back(operator: Operator) -> None:
    before = state(operator)
    refused = operator.play("site", "--limit", AGENT)
    assert refused.code != 0 and f"--limit: leaves out {SERVER}, which is the server" in refused.errors[0]
    assert find_differences(operator, before) == []

    play = operator.start("site", muster_drill={"target": "agent", "rank": 1, "at_step": 25})
    seen: dict[str, list[str]] = {}
    try:
        until(lambda: play.process.poll() is not None or list_devices(operator, seen), 480)
    finally:
        first = play.wait(480)
    assert first.code == 0, first.output
    assert len(seen) >= 2 and list(seen.values()) == [["nvidia0", "nvidia1"]] * len(seen), seen
    proof = json.loads((operator.state / "gpus.json").read_text())
    assert [(item["outcome"], item["seen"]["smi"]) for item in proof["nodes"]] == [("pass", gpu_site.COUNT)] * 2, proof
    offered, quota = list_gpus(operator)
    assert offered == [str(gpu_site.COUNT)] * 2 and quota == [str(gpu_site.COUNT * 2)], "jobs may use what nodes offer"
    for name in (SERVER, AGENT):
        devices = operator.lab.ask(name, "nvidia-ctk", "cdi", "list")
        assert "nvidia.com/gpu=1" in devices, "the specification of the real nvidia-ctk"
    (folder,) = (operator.state / "runs").iterdir()
    record = json.loads((folder / "run.json").read_text())
    assert (record["outcome"], record["backend"], record["world_size"]) == (
        "succeeded",
        "kubernetes",
        {"asked": 2, "seen": 2},
    )
    assert record["drill"]["resumed"] is True and record["steps_lost"] <= INTERVAL, record["drill"]
    (load,) = operator.items("workloads.kueue.x-k8s.io", "-n", "training")
    (pods,) = load["status"]["admission"]["podSetAssignments"]
    assert pods["topologyAssignment"]["levels"] and load["spec"]["podSets"][0]["topologyRequest"]["required"] == ISLAND
    phases = json.loads((operator.state / "site.json").read_text())["phases"]
    assert [item["name"] for item in phases] == PHASES and all(item["seconds"] > 0 for item in phases)
    page = (folder / "report" / "report.html").read_text()
    assert all(f"<span>{name}</span>" in page for name in PHASES[:-1])

    started, running, writes = operator.lab.started(), pods_of(operator), written(operator)
    assert writes, "the audit log does not show what the first play wrote"
    again = operator.play("site")
    assert again.code == 0 and again.changed == 0, again.output
    assert operator.lab.started() == started and pods_of(operator) == running
    assert written(operator)[len(writes) :] == []

    left = operator.play("remove_nodes", muster_remove_nodes=AGENT, muster_devices_absent=True)
    assert left.code == 0, left.output
    assert [node["metadata"]["name"] for node in operator.items("nodes")] == [SERVER]
    assert find_differences(operator, before, AGENT) == []
    assert operator.lab.started()[0] == started[0]

    gone = operator.play("cluster_absent", muster_devices_absent=True)
    assert gone.code == 0, gone.output
    assert find_differences(operator, before) == []
    seconds = {item["name"]: item["seconds"] for item in phases}
    NOTES.append(
        f"site: {first.seconds:.0f} s {seconds}, again {again.seconds:.1f} s, API writes first {len(writes)}, then 0"
    )
