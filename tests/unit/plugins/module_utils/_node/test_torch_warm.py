# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fork server beside torchrun: who can reach it, and that it ends with what it was started for."""

from __future__ import annotations

import os
import pathlib
import sys
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, host_units, processes, torch_warm
from ansible_collections.muster.training.tests.support.node_lab import NodeLab, eventually, unit_exit
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab

# Says where it listens and with which variables, and stays.
SERVER = """
import os, sys, time
with open(sys.argv[1] + ".tmp", "w") as file:
    file.write(f"{os.getpid()} {os.environ['MUSTER_WARM']} {os.environ['PLAIN']} {os.getcwd()}")
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(60)
"""
# Ends once the server is there, and says which one its ranks would ask.
LAUNCHER = 'while [ ! -e "$1" ]; do sleep 0.01; done; echo "asks $MUSTER_WARM"'


def server(place: pathlib.Path | str) -> list[str]:
    return [sys.executable, "-c", SERVER, str(place)]


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[NodeLab]:
    lab = NodeLab(tmp_path)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "detached")
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    yield lab
    lab.close()


def test_only_this_user_reaches_the_server_and_it_ends_with_its_unit(tmp_path: pathlib.Path) -> None:
    marker, place = f"warm-{uuid.uuid4().hex}", tmp_path / "said"
    env = {**os.environ, processes.MARKER: marker, "PLAIN": "p"}
    before = os.umask(0)
    try:
        variables = torch_warm.start_fork_server(server(place), env, str(tmp_path), tmp_path / "warm", None)
    finally:
        os.umask(before)
    assert variables == {"MUSTER_WARM": str(tmp_path / "warm" / "socket")}
    assert (tmp_path / "warm").stat().st_mode & 0o777 == 0o700
    eventually(place.exists, "the server")
    pid, socket, plain, folder = place.read_text().split()
    assert (socket, plain, folder) == (variables["MUSTER_WARM"], "p", str(tmp_path))
    assert os.getsid(int(pid)) == int(pid)
    assert processes.kill_marked(marker) == [] and processes.start_time(int(pid)) is None


@pytest.mark.parametrize(
    ("argv", "cwd"), [(["/no/such/python", "-u"], "/"), ([sys.executable, "-V"], "/no/such/folder")]
)
def test_a_server_that_cannot_be_started_is_done_without(tmp_path: pathlib.Path, argv: list[str], cwd: str) -> None:
    assert torch_warm.start_fork_server(argv, {}, cwd, tmp_path / "warm", None) == {}


def test_the_supervisor_of_a_host_starts_and_ends_it(lab: NodeLab) -> None:
    run_id = f"r-{uuid.uuid4().hex[:8]}"
    run, place = files.private_dir(lab.run("a", run_id)), lab.root / "said"
    argv = ["sh", "-c", LAUNCHER, "-", str(place)]
    spec = lab.spec("a", run_id, argv, warm=server(place), env={"PLAIN": "p"})
    assert host_units.start_unit(spec, pathlib.Path(str(lab.installed("a").program)))
    assert unit_exit(run)["exit_code"] == 0
    pid, socket, plain, _folder = place.read_text().split()
    assert (run / "units" / "agent" / "log").read_text() == f"asks {socket}\n" and plain == "p"
    assert pathlib.Path(socket).parent == run / "units" / "agent" / "warm"
    assert processes.start_time(int(pid)) is None


def test_the_program_of_a_pod_starts_and_ends_it(tmp_path: pathlib.Path) -> None:
    lab, place = PodLab(tmp_path), tmp_path / "said"
    try:
        spec = lab.spec(0, ["sh", "-c", LAUNCHER, "-", str(place)], warm=tuple(server(place)), env={"PLAIN": "p"})
        end = lab.run(spec)
    finally:
        lab.close()
    pid, socket, plain, _folder = place.read_text().split()
    assert (end.code, end.lines) == (0, [f"asks {socket}"]) and plain == "p"
    assert pathlib.Path(socket).parent == lab.run_dir(0) / "warm"
    assert processes.start_time(int(pid)) is None
