# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torchrun across two machines: lost nodes, nodes that reboot, and a measured network. Needs MUSTER_TORCH_PYTHON."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import systemd
from ansible_collections.muster.training.tests.lab.nodes import Lab
from ansible_collections.muster.training.tests.lab.plays import ROOT, Controller

INTERVAL = 10
LAST = 60
RATE_MBPS = 200
# Loading torch on two nodes of one small machine is most of the time.
LIMIT_S = 240


def char_lm(controller: Controller, python: str, shared: bool, **values: t.Any) -> dict[str, t.Any]:
    """Return the example as a job over both nodes, its text staged, its checkpoints on a shared or on local disks."""
    args = [
        "--steps",
        LAST,
        "--step-time-min",
        0.05,
        "--checkpoint-every",
        INTERVAL,
        "--data",
        "{run_dir}/data/text/LICENSE",
    ]
    checkpoints: dict[str, t.Any] = {"interval_steps": INTERVAL, "grace_s": 5}
    if shared:
        checkpoints["path"] = f"{controller.shared}/checkpoints"
    return {
        "name": "lab",
        "nodes": 2,
        "launcher": "torchrun",
        "python": python,
        "code": {"from": "path", "ref": str(ROOT / "examples" / "char_lm")},
        "script": "train.py",
        "args": [str(item) for item in args],
        "datasets": [{"name": "text", "path": str(ROOT / "LICENSE")}],
        "checkpoints": checkpoints,
        "env": {"OMP_NUM_THREADS": "1"},
        **values,
    }


def assert_resumed(controller: Controller) -> None:
    """Assert that all steps were made, at most an interval of them twice, by as many ranks as asked each time."""
    steps = controller.steps()
    assert steps[-1] == LAST and set(steps) == set(range(1, LAST + 1))
    assert len(steps) - len(set(steps)) <= INTERVAL
    record = controller.record()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert len(record["attempts"]) >= 2


@pytest.mark.parametrize("node", ["lab-2", "lab-1"])
def test_drill_of_a_host_resumes(lab: Lab, controller: Controller, torch_python: str, node: str) -> None:
    """Everything of the run on a host is killed: the second host, and the first with the rendezvous store."""
    drill = {"target": "host", "node": node, "at_step": 25}
    job = char_lm(controller, torch_python, shared=False)
    ended = controller.play("drill", job, LIMIT_S, muster_drill=drill)
    assert ended.code == 0, ended.output
    assert_resumed(controller)
    proof = controller.record()["drill"]
    assert (proof["resumed"], proof["world_size"]) == (True, 2)
    for other in lab.nodes:
        assert systemd.traces(lab, other.name, controller.run_id) == []


@pytest.mark.parametrize(("node", "orderly"), [("lab-2", True), ("lab-1", False)])
def test_node_that_reboots_is_waited_for(
    lab: Lab, controller: Controller, torch_python: str, node: str, orderly: bool
) -> None:
    """A machine is shut down (or loses its power) and is booted again while the job waits for it."""
    job = char_lm(controller, torch_python, shared=orderly, restart={"on_lost_node": "wait"})
    play = controller.start("train", job)
    controller.wait_step(25, LIMIT_S)
    (lab.shut_down if orderly else lab.power_off)(node)
    lab.power_on(node)
    ended = play.wait(LIMIT_S)
    assert ended.code == 0, ended.output
    assert_resumed(controller)
    for other in lab.nodes:
        assert systemd.traces(lab, other.name, controller.run_id) == []


@pytest.fixture
def shaped(lab: Lab) -> t.Iterator[None]:
    """Give the link a rate to measure against: a bridge alone is as fast as the machine is idle."""
    for node in lab.nodes:
        tbf = ("tbf", "rate", f"{RATE_MBPS}mbit", "burst", "64kb", "latency", "50ms")
        lab.ask(node.name, "tc", "qdisc", "add", "dev", "eth0", "root", *tbf)
    yield
    for node in lab.nodes:
        lab.ask(node.name, "tc", "qdisc", "del", "dev", "eth0", "root")


@pytest.mark.usefixtures("shaped")
def test_fabric_between_two_machines_is_measured(lab: Lab, torch_python: str, controller: Controller) -> None:
    # In an all-reduce of two ranks each sends as much as the bus bandwidth counts; headers take 6 % of an Ethernet link.
    expected = {"busbw_gb_s": RATE_MBPS / 8e3 * 0.94, "source": "the rate that tc was given"}
    values = {"muster_training_python": torch_python, "muster_expectations": [expected]}
    ended = controller.play("verify_fabric", limit_s=LIMIT_S, **values)
    assert ended.code == 0, ended.output
    verdict = json.loads((controller.state / "lab" / "fabric.json").read_text())["islands"][0]
    assert verdict["outcome"] in ("pass", "warn")
    assert verdict["transport"]["verdict"] == "tcp"
    assert verdict["ranks"] == {"expected": 2, "seen": 2, "missing": []}
    assert 0.7 < verdict["bandwidth"]["ratio"] < 1.1 and not verdict["wrong_values"]
    addresses = {node.address for node in lab.nodes}
    evidence = " ".join(str(pair["evidence"]) for pair in verdict["transport"]["pairs"])
    assert all(address in evidence for address in addresses), evidence
