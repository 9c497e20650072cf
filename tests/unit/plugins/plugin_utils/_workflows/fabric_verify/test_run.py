# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabric tests on two local nodes: torch with gloo for real, nccl-tests under the real mpirun and sshd.

No machine here has GPUs, so a program prints what nccl-tests and NCCL printed elsewhere (recorded, tests/fixtures).
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import sys
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    MusterError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import run as fabric_verify
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.history import StoredVerdict
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support import debian, sshd
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]
RECORDED = pathlib.Path(__file__).parents[5] / "fixtures" / "fabric"
PRINTED = (RECORDED / "nccltests-good-h100-8nodes-ib-coreweave.txt").read_text()


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    world = RunWorld(tmp_path)
    yield world
    world.close()


def request(world: RunWorld, check: bool = False, **options: t.Any) -> training_job.RunRequest:
    """Return a request of the fabric_verify module."""
    values: Dict = {"collective": "all_reduce", "seconds": 0.1, "timeout_s": 60.0, "allow_unproven": False}
    return world.request(None, check=check, **{**values, **options})


def island(**changes: t.Any) -> list[Dict]:
    return [{"name": "lab", "nodes": ["a", "b"], **changes}]


def folder(world: RunWorld) -> pathlib.Path:
    return world.home()


def test_check_mode_measures_and_writes_nothing(world: RunWorld) -> None:
    found = fabric_verify.run(request(world, check=True, islands=island()))
    assert [item["name"] for item in found["islands"]] == ["lab"] and not folder(world).exists()


@pytest.mark.parametrize("check", [False, True])
def test_one_node_with_one_rank_has_no_network_to_verify(world: RunWorld, check: bool) -> None:
    found = fabric_verify.run(dataclasses.replace(request(world, check=check), hosts=["a"]))
    assert found["table"] == ["a: one node with one rank; there is no network between ranks to verify"]
    assert not found.get("failed") and found["exit_code"] == 0 and not folder(world).exists()


def test_two_nodes_without_a_path_between_them_are_not_one_rank_each(world: RunWorld) -> None:
    """Each is an island of its own, and jobs on both would have no network: that is UNPROVEN."""
    apart = [{"name": name, "nodes": [name]} for name in "ab"]
    found = fabric_verify.run(request(world, islands=apart))
    assert found["failed"] is True and found["exit_code"] == 1, found
    assert [entry["outcome"] for entry in found["fabric"]["islands"]] == ["unproven", "unproven"]


def test_nccl_tests_measure_nccl_only(world: RunWorld) -> None:
    with pytest.raises(InputError, match="nccl-tests measure NCCL only"):
        fabric_verify.run(request(world, bench="nccl_tests", backend="gloo"))


def test_an_island_on_which_a_run_lives_keeps_its_verdict(world: RunWorld) -> None:
    folder(world).mkdir(parents=True)
    kept = {"island": "lab", "outcome": "warn", "nodes": ["a", "b"], "reasons": ["as before"]}
    gone = {"island": "old", "outcome": "pass", "nodes": ["x"]}
    (folder(world) / "fabric.json").write_text(json.dumps({"schema": 1, "islands": [kept, gone, "damaged"]}))
    world.play(world.job("sleep", "600"), wait=False)
    for name in "ab":
        eventually(lambda name=name: list(world.lab.events(name, world.run_id)), f"a rank on {name}")
    found = fabric_verify.run(request(world, idle_only=True, islands=island()))
    assert found["table"] == ["island lab: not tested because a run is running on a, b; its last verdict is kept"]
    assert found["exit_code"] == 0 and found["fabric"]["islands"] == [kept]
    assert json.loads((folder(world) / "fabric.json").read_text()) == found["fabric"]
    # A node that the inventory no longer knows loses its labels.
    assert set(found["node_patches"]) == {"x"}
    (folder(world) / "fabric.json").write_text(json.dumps({"islands": [{**kept, "outcome": "fail"}]}))
    again = fabric_verify.run(request(world, idle_only=True, islands=island()))
    assert again["failed"] is True and again["msg"] == "nothing was tested, and the last verdict is fail"


@pytest.mark.parametrize(
    ("asked", "absent", "kept"),
    [
        pytest.param(["a"], [], ["lab"], id="limited"),
        pytest.param(["a", "b"], [], ["solo-a"], id="b is an island of its own now"),
        pytest.param(["a"], ["b"], ["solo-a"], id="b does not answer"),
    ],
)
def test_a_node_that_was_left_alone_keeps_the_verdict_of_all(
    asked: list[str], absent: list[str], kept: list[str]
) -> None:
    """``site --limit a`` measures no network: the verdict on a and b is what jobs on both need."""
    stored = [StoredVerdict(("a", "b"), {"island": "lab", "nodes": ["a", "b"]})]
    solo: t.Any = types.SimpleNamespace(
        island=types.SimpleNamespace(nodes=("a",)), to_dict=lambda: {"island": "solo-a", "nodes": ["a"]}
    )
    target = types.SimpleNamespace(all_names=lambda: {"a", "b"}, names=lambda: asked, cluster_id="")
    fleet = types.SimpleNamespace(absent=[types.SimpleNamespace(name=name) for name in absent])
    work: t.Any = types.SimpleNamespace(target=target, fleet=fleet, absent=absent)
    document, entries = fabric_verify._build_document(stored, [solo], work)
    assert [entry.document["island"] for entry in entries] == kept
    assert document["islands"] == [entry.document for entry in entries]


@pytest.mark.torch
def test_a_real_test_is_kept_and_compared_with_the_next_one(world: RunWorld) -> None:
    python = os.environ.get("MUSTER_TORCH_PYTHON")
    if not python:
        pytest.skip("MUSTER_TORCH_PYTHON names no interpreter with torch")
    first = fabric_verify.run(request(world, python=python, islands=island()))
    entry = first["fabric"]["islands"][0]
    rate = entry["bandwidth"]["busbw_gb_s"]
    # One machine: there is no wire to compare with, and that is no pass.
    assert entry["outcome"] == "unproven" and first["failed"] is True and first["drift"] == {}
    assert entry["transport"]["verdict"] == "tcp" and entry["wrong_values"] == 0 and rate > 0
    assert entry["ranks"] == {"expected": 2, "seen": 2, "missing": []}
    patch = first["node_patches"]["b"]["metadata"]
    assert patch["labels"]["muster.training/fabric"] == "unproven" and set(first["node_patches"]) == {"a", "b"}
    history = folder(world) / "fabric_history.jsonl"
    line = json.loads(history.read_text())
    assert (line["busbw_gb_s"], line["outcome"], line["backend"]) == (rate, "unproven", "gloo/torch")
    # As if this island had been far faster until now, and were declared so: a busy machine may be twice as slow in one
    # test as in the other, and a rate above what is declared would be unproven.
    better = {**line, "outcome": "pass", "busbw_gb_s": 50 * rate, "pairs": []}
    history.write_text(f"{json.dumps(better)}\ntorn {{\n")
    declared = island(expected_busbw_gb_s=50 * rate)
    second = fabric_verify.run(request(world, python=python, islands=declared))
    entry = second["fabric"]["islands"][0]
    assert "drift" in [cause["code"] for cause in entry["causes"]]
    assert any(change.startswith("bandwidth: ") for change in entry["drift"])
    assert entry["outcome"] == "fail" and second["drift"]["lab"] == entry["drift"]
    assert len(history.read_text().splitlines()) == 3
    assert any("changed: bandwidth" in text for text in world.said.lines)


NCCL_TESTS = """#!{python}
import os, pathlib, sys, time
rank, node = int(os.environ["OMPI_COMM_WORLD_RANK"]), os.environ["MUSTER_NODE"]
assert sys.argv[1:5:2] == ["-b", "-e"] and "-c" in sys.argv, sys.argv
head = f"{{node}}:{{100 + rank}}:{{100 + rank}} [0] NCCL INFO "
peer = 1 - rank
lines = [
    f"Bootstrap: Using eth0:10.0.0.{{rank + 1}}<0>",
    f"ncclCommInitRankConfig comm 0x55{{rank}} rank {{rank}} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xab - Init START",
    f"Channel 00/0 : {{rank}}[0] -> {{peer}}[0] [send] via NET/{network}",
    f"Channel 00/0 : {{peer}}[0] -> {{rank}}[0] [receive] via NET/{network}",
]
name = os.environ["NCCL_DEBUG_FILE"].replace("%h", node).replace("%p", str(100 + rank))
pathlib.Path(name).write_text("".join(head + line + "\\n" for line in lines))
{act}
if rank == 0:
    for number in range(2):
        print(f"#  Rank  {{number}} Group  0 Pid {{100 + number}} on {{'ab'[number]}} device  0 [0000:18:00] NVIDIA H100 80GB HBM3")
    print(pathlib.Path({printed!r}).read_text(), flush=True)
"""


@pytest.fixture
def sshd_works() -> t.Iterator[None]:
    with sshd.folder():
        yield


def nccl_tests(world: RunWorld, network: str = "IB/0/GDRDMA", act: str = "", **options: t.Any) -> Dict:
    """Verify with a program in place of nccl-tests that prints recorded output; everything around it is real."""
    for name, package in (("mpirun", "openmpi-bin"), ("sshd", "openssh-server"), ("ssh", "openssh-client")):
        lacking = debian.obtain(name, package)
        if lacking:
            pytest.skip(lacking)
    for name in ("mpirun", "orted", "ssh", "env", "cat"):
        (world.lab.root / "bin" / name).symlink_to(t.cast(str, shutil.which(name)))
    smi = world.lab.root / "bin" / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "0, NVIDIA H100 80GB HBM3, GPU-1, 81559, 00000000:18:00.0, 580.95.05, 9.0"\n')
    smi.chmod(0o755)
    programs = world.root / "programs"
    programs.mkdir()
    printed = world.root / "printed.txt"
    printed.write_text(PRINTED)
    program = programs / "all_reduce_perf"
    program.write_text(NCCL_TESTS.format(python=sys.executable, network=network, act=act, printed=str(printed)))
    program.chmod(0o755)
    declared = island(link="ib", lane="A", nic_count=1, nic_rate_gbps=400, expected_busbw_gb_s=380)
    values = {"islands": declared, "bench": "nccl_tests", "nccl_tests": str(programs), **options}
    return fabric_verify.run(request(world, **values))


@pytest.mark.usefixtures("sshd_works")
def test_nccl_tests_under_mpirun_prove_rdma_and_pass(world: RunWorld) -> None:
    found = nccl_tests(world)
    entry = found["fabric"]["islands"][0]
    assert entry["outcome"] == "pass", (entry["reasons"], world.said.lines)
    assert entry["transport"]["verdict"] == "rdma_gdr" and entry["lane"] == "A"
    assert {(pair["a"], pair["b"], pair["via"]) for pair in entry["transport"]["pairs"]} == {
        ("a", "b", "IB"),
        ("b", "a", "IB"),
    }
    assert entry["bandwidth"]["busbw_gb_s"] == 386.56 and entry["bandwidth"]["algorithm"] == "RING"
    assert found["hosts"]["a"]["nccl_environment"].get("NCCL_ALGO") is None
    # An agent that has just answered may need a moment to end: nothing may stay, and no rank or launcher for sure.
    eventually(lambda: not world.lab.left(), "the end of every process of the test")


@pytest.mark.usefixtures("sshd_works")
def test_the_same_figure_over_tcp_fails(world: RunWorld) -> None:
    entry = nccl_tests(world, network="Socket/0")["fabric"]["islands"][0]
    assert entry["outcome"] == "fail" and entry["transport"]["verdict"] == "tcp"
    assert "rdma_gdr was expected, tcp was proven" in entry["reasons"][0]


@pytest.mark.usefixtures("sshd_works")
def test_a_rank_that_hangs_is_killed_when_its_time_is_over(world: RunWorld) -> None:
    found = nccl_tests(world, act="time.sleep(600 if rank == 1 else 0)", timeout_s=6.0)
    entry = found["fabric"]["islands"][0]
    assert found["failed"] is True and entry["outcome"] == "fail", entry
    assert any("not all ranks finished the test" in reason for reason in entry["reasons"])
    assert entry["ranks"] == {"expected": 2, "seen": 1, "missing": [1]}
    assert ("ranks_missing", "b") in [(cause["code"], cause.get("node")) for cause in entry["causes"]]
    eventually(lambda: not [line for line in world.lab.left().values() if "all_reduce_perf" in line], "its end")


@pytest.mark.usefixtures("sshd_works")
def test_programs_that_are_not_there_are_named(world: RunWorld) -> None:
    found = nccl_tests(world, collective="all_gather")
    entry = found["fabric"]["islands"][0]
    assert found["failed"] is True and entry["outcome"] in ("fail", "unproven")
    assert any("nccl-tests is not installed: all_gather_perf" in reason for reason in entry["reasons"])


# ---- the order of stages, with groups that only look measured -----------------------------------------------------


# ---- hosts that do not answer -------------------------------------------------------------------------------------


def deaf(world: RunWorld, name: str) -> None:
    """Let nothing answer at a host."""

    def shell(_command: str, _data: bytes) -> t.NoReturn:
        raise UnreachableError(name, f"ssh: connect to host {name} port 22: Connection refused", "Check its address")

    world.nodes[name] = NodeClient(name, shell)


def test_a_host_that_does_not_answer_is_named_and_the_others_are_looked_at(world: RunWorld) -> None:
    deaf(world, "b")
    found = fabric_verify.run(request(world, check=True, islands=island()))
    assert [item["nodes"] for item in found["islands"]] == [["a"]]
    (item,) = found["absent"]
    assert item["node"] == "b" and "port 22: Connection refused" in item["problem"] and item["fix"]


def test_a_verdict_says_which_host_did_not_answer_and_is_no_pass(world: RunWorld) -> None:
    folder(world).mkdir(parents=True)
    other = {"island": "old", "outcome": "pass", "nodes": ["a", "b"]}
    (folder(world) / "fabric.json").write_text(json.dumps({"schema": 1, "islands": [other]}))
    deaf(world, "b")
    found = fabric_verify.run(request(world, islands=island()))
    (entry,) = found["fabric"]["islands"]
    assert entry["nodes"] == ["a"] and entry["outcome"] == "unproven" and entry["checks"]["attendance"] == "unproven"
    assert ("host_unreachable", "b") in [(cause["code"], cause.get("node")) for cause in entry["causes"]]
    assert found["failed"] is True and "b: ssh: connect to host b port 22" in found["msg"]
    assert json.loads((folder(world) / "fabric.json").read_text())["absent"] == found["absent"]
    # Nothing is proven about b any more.
    assert found["node_patches"]["b"]["metadata"]["labels"]["muster.training/fabric"] is None
    accepted = fabric_verify.run(request(world, islands=island(), allow_unproven=True))
    assert "failed" not in accepted and accepted["absent"]
    assert "warning: the network is unproven, and the play continues. Declare the link (muster_islands)" in "".join(
        world.said.lines
    )


def test_hosts_of_which_none_answers_end_with_what_one_said(world: RunWorld) -> None:
    deaf(world, "a")
    deaf(world, "b")
    with pytest.raises(MusterError, match=r"port 22: Connection refused \(also failed: b\)"):
        fabric_verify.run(request(world))
    assert not folder(world).exists()


def test_an_agent_that_cannot_run_there_is_an_absent_host_too(world: RunWorld) -> None:
    world.nodes["b"] = NodeClient("b", lambda _command, _data: (1, "", "muster: Python 3.6 is too old"))
    found = fabric_verify.run(request(world, check=True))
    assert [(item["node"], "3.6" in item["problem"]) for item in found["absent"]] == [("b", True)]
