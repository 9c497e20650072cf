# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that wait for their rendezvous: the store, the first node's port, the other nodes."""

from __future__ import annotations

import pathlib
import socket
import threading
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files as node_files
from ansible_collections.muster.training.plugins.module_utils._node import host_rendezvous, host_units
from ansible_collections.muster.training.tests.support.node_lab import NodeLab, free_port

Dict = dict[str, t.Any]


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[NodeLab]:
    lab = NodeLab(tmp_path)
    yield lab
    lab.close()


def test_a_node_that_needs_nobody_waits_for_nothing() -> None:
    assert host_rendezvous.reach_gang({}) is None


@pytest.mark.parametrize(
    ("request_part", "problem"),
    [
        ({"reach": {"host": "127.0.0.1"}}, "cannot reach the first node at 127.0.0.1:{port} ("),
        ({"meet": {"host": "127.0.0.1", "peers": 2}}, "only 0 of 2 other nodes could reach 127.0.0.1:{port}"),
        ({"meet": {"host": "192.0.2.1", "peers": 1}}, "cannot listen on 192.0.2.1:{port}: Cannot assign"),
    ],
)
def test_a_rendezvous_that_cannot_be_reached_is_named(request_part: dict[str, Dict], problem: str) -> None:
    port = free_port()
    request = {name: {**values, "port": port, "seconds": 0} for name, values in request_part.items()}
    assert (host_rendezvous.reach_gang(request) or "").startswith(problem.format(port=port))


def test_nodes_meet_at_the_first_one() -> None:
    where: Dict = {"host": "127.0.0.1", "port": free_port(), "seconds": 30}
    answers: list[str | None] = []
    first = threading.Thread(target=lambda: answers.append(host_rendezvous.reach_gang({"meet": {**where, "peers": 2}})))
    first.start()
    assert [host_rendezvous.reach_gang({"reach": where}) for _peer in range(2)] == [None, None]
    first.join()
    assert answers == [None]
    with pytest.raises(OSError, match="refused"):
        # Nothing listens there any more: torchrun takes the port.
        socket.create_connection(("127.0.0.1", where["port"]), timeout=2)


# Stands for a supervisor whose store's port is taken, in the moment before it has written its exit file.
FAILED = """import json, os, pathlib, sys, time
spec = json.loads(pathlib.Path(sys.argv[2]).read_text())
started = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
state = {"state": "failed", "detail": "cannot listen on x:1: in use", "supervisor": f"{os.getpid()}@{started}"}
pathlib.Path(spec["folder"], "state.json").write_text(json.dumps({**state, "generation": 1}))
time.sleep(60)
"""


def test_a_store_whose_port_is_taken_is_a_problem(lab: NodeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "detached")
    (lab.root / "run.py").write_text(FAILED)
    spec = lab.spec("a", f"r-{uuid.uuid4().hex[:8]}", ["true"], unit="store", policy="store")
    host_units.start_unit(spec, lab.root, wait=False)
    assert host_rendezvous.reach_gang({"store": spec}) == "cannot listen on x:1: in use"


def test_a_store_that_waits_for_its_port_is_waited_for(lab: NodeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_units, "unit_manager", lambda: "detached")
    program, port = pathlib.Path(str(lab.installed("a").program)), free_port()
    where, argv = {"host": "127.0.0.1", "port": port}, ["sleep", "60"]
    spec = lab.spec("a", f"r-{uuid.uuid4().hex[:8]}", argv, unit="store", policy="store", listen=where)
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    node_files.private_dir(pathlib.Path(spec["cwd"]))
    with socket.create_server(("127.0.0.1", port)) as held:
        host_units.start_unit(spec, program)
        assert host_units.unit_status(pathlib.Path(spec["folder"]))["state"] == "waiting"
        threading.Timer(0.3, held.close).start()
        assert host_rendezvous.reach_gang({"store": spec}) is None
