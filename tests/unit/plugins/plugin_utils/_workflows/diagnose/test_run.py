# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis of runs that really run on two local nodes, with real processes and sockets, by another controller."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import socket
import sys
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import stall
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    MusterError,
    RefusedError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import run as diagnose_run
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import OWN_CLUSTER, StateHome
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]
# Each rank writes a step every 50 ms; rank 1 does what is given instead once it has begun.
STEPS = """
import json, os, socket, sys, time
def step(n):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as out:
        out.write(json.dumps({"at": time.time(), "step": n}) + "\\n")
"""
MOVING = STEPS + "n = 0\nwhile True:\n    n += 1\n    step(n)\n    time.sleep(0.05)\n"
SILENT = "import time\ntime.sleep(600)\n"


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[RunWorld]:
    monkeypatch.setattr(scrubber, "_registry", scrubber._Registry())
    world = RunWorld(tmp_path)
    yield world
    world.close()


def begin(world: RunWorld, program: str, **changes: t.Any) -> None:
    """Start a run and leave it; return when both ranks live."""
    world.play(world.job(sys.executable, "-c", program, **changes), wait=False)
    for name in "ab":
        eventually(lambda name=name: list(world.lab.events(name, world.run_id)), f"a rank on {name}")


def look(world: RunWorld, controller: str = "elsewhere", **changes: t.Any) -> Dict:
    values: Dict = {"run_id": None, "hosts": ["a", "b"], "window_s": 0.1, "ras_s": 0.0, "hostvars": {"a": {}, "b": {}}}
    home = StateHome({"path": str(world.root / controller)}, "default")
    request = diagnose_run.DiagnoseRequest(
        home=home, connect=world.connect, progress=world.said, **{**values, **changes}
    )
    return diagnose_run.run(request)


def rank_pid(world: RunWorld, name: str) -> int:
    return int(next(e["pid"] for e in world.lab.events(name, world.run_id) if e["kind"] == "worker_started"))


def test_a_run_that_moves_and_one_whose_rank_is_stopped(world: RunWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(world, MOVING, env={"MY_TOKEN": "geheim-42", "NCCL_DEBUG": "WARN"})
    eventually(lambda: (world.lab.run("a", world.run_id) / "metrics.jsonl").exists(), "a step")
    found = look(world)
    diagnosis = found["diagnosis"]
    assert (diagnosis["state"], diagnosis["outcome"], diagnosis["causes"]) == ("moving", "pass", [])
    assert diagnosis["ranks"] == {"expected": 2, "alive": 2} and found["run_id"] == world.run_id
    rank = diagnosis["nodes"]["b"]["seen"]["ranks"][0]
    assert "MY_TOKEN" in rank["environment"]["names"] and rank["environment"]["network"]["NCCL_DEBUG"] == "WARN"
    assert "geheim" not in json.dumps(found) and rank["limits"]["nofile"] and rank["state"] in "RS"
    # No controller's record is needed, and none is written.
    assert not (world.root / "elsewhere").exists()
    os.kill(rank_pid(world, "b"), signal.SIGSTOP)
    dest = world.root / "diagnosis.json"
    stopped = look(world, dest=str(dest))
    # The other rank's steps go on, so the job as a whole moves.
    codes = [(item["code"], item.get("node")) for item in stopped["diagnosis"]["causes"]]
    assert codes == [("rank_stopped", "b")] and stopped["diagnosis"]["outcome"] == "warn"
    os.kill(rank_pid(world, "a"), signal.SIGSTOP)
    for name in ("LEAST_S", "TIMES", "READINGS", "PAUSES", "STARTS"):
        monkeypatch.setattr(stall, name, 0.0)
    hanging = look(world, dest=str(dest))
    assert hanging["diagnosis"]["state"] == "hanging" and hanging["diagnosis"]["outcome"] == "fail"
    assert [(i["code"], i["node"]) for i in hanging["diagnosis"]["causes"]] == [
        ("rank_stopped", "a"),
        ("rank_stopped", "b"),
    ]
    assert [item["code"] for item in hanging["diagnosis"]["also"]] == ["stalled"]
    assert json.loads(dest.read_text()) == json.loads(json.dumps(hanging["diagnosis"]))
    assert any(line.startswith(f"run {world.run_id}: FAIL · hanging, step") for line in world.said.lines)
    # Where each stands, by a line of the program: its memory can be read while it is stopped.
    lines = [line.partition(": ") for line in hanging["summary"][-2:]]
    assert [line[0] for line in lines] == ["rank 0 on a", "rank 1 on b"]
    assert all(re.search(r"\(<string>:\d+\)", line[2]) for line in lines), lines


def test_a_connection_without_an_answer_is_named_with_its_target(world: RunWorld) -> None:
    # A listener whose queue is full drops what asks for a connection, as a firewall does.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for item in waiting:
            item.setblocking(False)
            item.connect_ex(("127.0.0.1", port))
        begin(world, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 600)\n")
        found = eventually(lambda: [r for r in [look(world)] if r["diagnosis"]["causes"]], "a retransmission")[0]
        for item in waiting:
            item.close()
    diagnosis = found["diagnosis"]
    assert diagnosis["state"] == "starting" and diagnosis["outcome"] == "fail"
    assert {item["code"] for item in diagnosis["causes"]} == {"socket_connect_timeout"}
    assert f"127.0.0.1:{port}" in diagnosis["causes"][0]["evidence"]


def test_a_rank_that_does_not_read_is_the_one_that_is_waited_for(world: RunWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = f"""
import os, socket, time
if os.environ["RANK"] == "1":
    server = socket.create_server(("127.0.0.1", {port}))
    peer = server.accept()[0]
    time.sleep(600)
while True:
    try:
        link = socket.create_connection(("127.0.0.1", {port}))
        break
    except OSError:
        time.sleep(0.02)
link.sendall(bytes(5000))
time.sleep(600)
"""
    begin(world, program)
    found = eventually(lambda: [r for r in [look(world)] if r["diagnosis"]["causes"]], "unread bytes")[0]["diagnosis"]
    assert [(item["code"], item["node"]) for item in found["causes"]] == [("rank_behind", "b")]
    assert "5000 bytes" in found["causes"][0]["evidence"]


def test_what_a_rank_printed_is_judged_and_an_end_is_told(world: RunWorld) -> None:
    program = "import os, sys\nprint('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB', flush=True)"
    world.play(world.job(sys.executable, "-c", program + "\nsys.exit(1)\n"))
    found = look(world, "home", run_id=world.run_id)["diagnosis"]
    codes = [item["code"] for item in found["causes"]]
    assert found["state"] == "ended" and found["outcome"] == "fail" and set(codes) == {"oom_gpu"}
    assert "rank_ended" in [item["code"] for item in found["also"]], "its log says why it ended"
    assert next(i["evidence"] for i in found["causes"] if i["code"] == "oom_gpu").startswith("a/units/agent/log:1: ")


def test_a_node_that_does_not_answer_is_the_cause_it_is(world: RunWorld) -> None:
    begin(world, SILENT)

    def gone(command: str, data: bytes) -> tuple[int, str, str]:
        raise UnreachableError("b", "No route to host", "Check its address")

    world.nodes["b"] = NodeClient("b", gone)
    found = look(world)["diagnosis"]
    # What runs on it nobody knows: its rank is not called missing.
    assert [(item["code"], item["node"]) for item in found["causes"]] == [("node_unreachable", "b")]
    assert "No route to host" in found["causes"][0]["evidence"] and found["nodes"]["b"]["seen"] is None
    assert found["ranks"] == {"expected": 2, "alive": 1, "unknown_on": ["b"]}


def test_hosts_that_answer_are_not_kept_waiting_by_one_that_does_not(world: RunWorld) -> None:
    """By the time a dead host is given up, a run that is known has been looked at on the others."""
    begin(world, SILENT)
    looked_at, waited = threading.Event(), []

    class Watched(NodeClient):
        def call(self, op: str, **values: t.Any) -> Dict:
            answer = super().call(op, **values)
            if op == "examine":
                looked_at.set()
            return answer

    def gone(command: str, data: bytes) -> tuple[int, str, str]:
        waited.append(looked_at.wait(6))
        raise UnreachableError("b", "no answer within 7 s", "")

    present = world.lab.remote("a")
    world.nodes.update(a=Watched("a", present.shell, present.python, present.state_root), b=NodeClient("b", gone))
    found = look(world, run_id=world.run_id)["diagnosis"]
    assert waited == [True] and found["ranks"] == {"expected": 2, "alive": 1, "unknown_on": ["b"]}


def test_machines_of_the_play_go_before_the_cluster_that_was_brought_up_from_here(world: RunWorld) -> None:
    """Its kubeconfig comes by itself: a run that no record knows is looked for on hosts, and in pods without any."""
    begin(world, SILENT)
    own = {"kubeconfig": str(world.root / "missing"), OWN_CLUSTER: True}
    assert look(world, cluster=own)["run_id"] == world.run_id
    named = {"kubeconfig": str(world.root / "missing")}
    for cluster, hosts in ((named, ["a", "b"]), (own, ["localhost"])):
        with pytest.raises(MusterError, match="missing"):
            look(world, cluster=cluster, hosts=hosts, hostvars={"a": {}, "b": {}, "localhost": {}}, base=world.root)


def test_what_cannot_be_found_is_one_line(world: RunWorld) -> None:
    with pytest.raises(RefusedError, match="no run is running on a, b, and no run is recorded"):
        look(world)
    with pytest.raises(RefusedError, match="run nothing does not exist on any host of the play"):
        look(world, run_id="nothing")
    with pytest.raises(RefusedError, match="no host of the run is in the inventory"):
        look(world, hosts=[])
    with pytest.raises(InputError, match="run_id"):
        look(world, run_id="../../etc")
    for run_id in (world.run_id, "second"):
        world.run_id = run_id
        begin(world, SILENT)
    with pytest.raises(InputError, match="2 runs are running on these hosts"):
        look(world)
