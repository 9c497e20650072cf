# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transport of a run, from what its ranks wrote and connected: whole runs on hosts, told pods, recorded logs."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.transport import (
    judge_evidence,
    newest_evidence,
)
from ansible_collections.muster.training.tests.support.run_world import RunWorld
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.fabric_verify.test_run import (
    nccl_tests,
    sshd_works,
    world,
)

__all__ = ["sshd_works", "world"]
Dict = dict[str, t.Any]
# As a training program under NCCL: its log goes where the environment says, and nothing else is faked.
TRAIN = """
import os, pathlib, time
rank, node, peer = int(os.environ["RANK"]), os.environ["MUSTER_NODE"], 1 - int(os.environ["RANK"])
assert os.environ["NCCL_DEBUG"] == "INFO" and os.environ["NCCL_DEBUG_SUBSYS"] == "INIT,NET"
head = f"host-{node}:{100 + rank}:{100 + rank} [0] NCCL INFO "
lines = [
    f"Bootstrap: Using eth0:10.0.0.{rank + 1}<0>",
    f"ncclCommInitRankConfig comm 0x55{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xab - Init START",
    *(f"Channel {n:02}/0 : {rank}[0] -> {peer}[0] [send] via NET/@NET@" for n in range(8)),
    *(f"Channel {n:02}/0 : {peer}[0] -> {rank}[0] [receive] via NET/@NET@" for n in range(8)),
]
place = os.environ["NCCL_DEBUG_FILE"].replace("%h", f"host-{node}").replace("%p", str(100 + rank))
pathlib.Path(place).write_text("".join(head + line + chr(10) for line in lines))
"""
# As gloo: a connection between two ranks beside that to the store, kept while it trains.
CONNECT = """
import os, pathlib, socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"]) + 7
if rank == 0:
    with socket.create_server(("127.0.0.1", port)) as server:
        link = server.accept()[0]
else:
    link = None
    while link is None:
        try:
            link = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
        except OSError:
            time.sleep(0.05)
time.sleep(2.5)
link.close()
"""


def train(world: RunWorld, network: str, **changes: t.Any) -> Dict:
    """Run a job of two nodes with a GPU each, whose ranks log that they use a network."""
    program = TRAIN.replace("@NET@", network)
    return world.play(world.job("python3", "-c", program, gpus_per_node=1, **changes))


@pytest.mark.usefixtures("sshd_works")
def test_a_run_that_fell_back_to_tcp_is_told_from_its_own_ranks(world: RunWorld) -> None:
    nccl_tests(world)
    done = train(world, "Socket/0")
    run = done["run"]
    assert run["outcome"] == "succeeded" and run["transport_seen"] == "tcp", world.said.lines
    assert {(pair["a"], pair["b"], pair["via"]) for pair in run["transport"]["pairs"]} == {
        ("a", "b", "Socket"),
        ("b", "a", "Socket"),
    }
    words = "the run's collectives use tcp (slower), and the fabric test of island lab proved rdma_gdr"
    assert run["transport"]["drift"] == [words] and run["detail"] == f"all ranks exited with code 0; {words}"
    assert f"warning: {words}" in world.said.lines
    assert json.loads((world.folder() / "run.json").read_text())["transport_seen"] == "tcp"


@pytest.mark.usefixtures("sshd_works")
def test_a_run_like_its_test_has_no_drift(world: RunWorld) -> None:
    nccl_tests(world)
    run = train(world, "IB/0/GDRDMA")["run"]
    assert (run["transport_seen"], run["transport"]["evidence_kind"]) == ("rdma_gdr", "nccl_log")
    assert run["transport"]["drift"] == [] and run["detail"] == "all ranks exited with code 0"


def test_a_job_that_logs_nccl_itself_is_left_alone(world: RunWorld) -> None:
    show = "import os; print(sorted(n for n in os.environ if n.startswith(('NCCL_DEBUG', 'MUSTER_NCCL'))))"
    smi = world.lab.root / "bin" / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "0, NVIDIA H100 80GB HBM3, GPU-1, 81559, 00000000:18:00.0, 580.95.05, 9.0"\n')
    smi.chmod(0o755)
    world.play(world.job("python3", "-c", show, gpus_per_node=1, env={"NCCL_DEBUG": "WARN"}))
    assert "['NCCL_DEBUG']" in (world.folder() / "logs" / "a.log").read_text()


def test_without_gpus_the_connection_of_two_ranks_is_the_proof(world: RunWorld) -> None:
    run = world.play(world.job("python3", "-c", CONNECT))["run"]
    assert run["outcome"] == "succeeded", world.said.lines
    assert (run["transport_seen"], run["transport"]["evidence_kind"]) == ("tcp", "socket_peers_and_netdev_counters")
    assert {(pair["a"], pair["b"], pair["via"]) for pair in run["transport"]["pairs"]} == {
        ("a", "b", "lo"),
        ("b", "a", "lo"),
    }


JOB: Dict = {"name": "x", "nodes": 2, "script": "/t.py"}
TESTED: Dict = {"island": "lab", "nodes": ["a", "b"]}


def evidence(node: str, rank: int, **found: t.Any) -> Dict:
    return {"at": 2.0, "kind": "transport", "node": node, "rank": rank, "attempt": 1, "gang": "g", **found}


def socket_end(local: str, peer: str, interface: str = "eth0") -> Dict:
    return {"local": local, "peer": peer, "interface": interface}


def job(**changes: t.Any) -> Job:
    return parse_job({**JOB, **changes})


def test_a_connection_with_one_end_proves_nothing() -> None:
    lines = [evidence("a", 0, sockets=[socket_end("10.0.0.1:5", "10.0.0.2:6")]), evidence("b", 1, sockets=[])]
    assert judge_evidence(job(), lines, ["a", "b"], None).result.verdict == "unproven"
    lines[1]["sockets"] = [socket_end("10.0.0.2:6", "10.0.0.1:5"), "foreign", None]
    assert judge_evidence(job(), lines, ["a", "b"], None).result.verdict == "tcp"
    # A third node without any connection is not proven.
    assert judge_evidence(job(), lines, ["a", "b", "c"], None).result.verdict == "unproven"
    # With GPUs, sockets are there beside whatever carries the tensors.
    assert judge_evidence(job(gpus_per_node=1), lines, ["a", "b"], None).result.verdict == "unproven"


def test_another_interface_than_in_the_test_is_told() -> None:
    lines = [
        evidence("a", 0, sockets=[socket_end("10.0.0.1:5", "10.0.0.2:6", "eno1")]),
        evidence("b", 1, sockets=[socket_end("10.0.0.2:6", "10.0.0.1:5", "eth1")]),
    ]
    pairs = [{"a": name, "b": other, "via": "eth1", "evidence": "x"} for name, other in ("ab", "ba")]
    tested = {**TESTED, "transport": {"verdict": "tcp", "pairs": pairs}}
    seen = judge_evidence(job(), lines, ["a", "b"], tested)
    assert seen.drift == ("a uses eno1, and the fabric test of island lab used eth1",)
    unproven = {**TESTED, "transport": {"verdict": "unproven", "pairs": []}}
    assert judge_evidence(job(), lines, ["a", "b"], unproven).drift == ()


def test_only_the_newest_attempt_counts() -> None:
    def ranks(gang: str, at: float) -> list[Dict]:
        start = {"kind": "worker_started", "node": "a", "gang": gang, "attempt": 1, "world_size": 1}
        return [{"at": at, "rank": 0, **start}, {**evidence("a", 0, lines=[gang]), "at": at, "gang": gang}]

    story = fold([*ranks("1/a:1", 1.0), *ranks("1/a:2", 5.0)], [])
    assert [line["lines"] for line in newest_evidence(story)] == [["1/a:2"]]
    assert newest_evidence(fold([], [])) == []


@pytest.mark.parametrize(("nodes", "verdict"), [(("a", "b"), "tcp"), (("a", "a"), "unproven")])
def test_pods_on_one_machine_prove_no_network(nodes: tuple[str, str], verdict: str) -> None:
    """Whatever NCCL says of its channels: no packet of theirs left the machine."""
    job = parse_job({"name": "x", "script": "/t.py", "nodes": 2, "gpus_per_node": 1})
    lines: list[Dict] = []
    for rank, node in enumerate(nodes):
        peer, head = 1 - rank, f"pod-{rank}:{100 + rank}:{100 + rank} [0] NCCL INFO "
        words = [
            f"Bootstrap: Using eth0:10.0.0.{rank + 1}<0>",
            f"ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1a commId 0xa - Init START",
            *(f"Channel {n:02}/0 : {rank}[0] -> {peer}[0] [send] via NET/Socket/0" for n in range(8)),
            *(f"Channel {n:02}/0 : {peer}[0] -> {rank}[0] [receive] via NET/Socket/0" for n in range(8)),
        ]
        lines.append({"rank": rank, "node": node, "lines": [head + word for word in words]})
    seen = judge_evidence(job, lines, set(nodes), None)
    assert seen.result.verdict == verdict and bool(seen.result.pairs) is (verdict == "tcp")
