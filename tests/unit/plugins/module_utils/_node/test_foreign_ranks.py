# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real processes with the variables of a launcher: which of them are ranks, and what they do."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import foreign_ranks, processes

PROGRAM = """
import subprocess, sys, threading
if sys.argv[1] == "child":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
lock = threading.Lock()
lock.acquire()
def stand():
    lock.acquire()
def turn():
    while True: pass
turn() if sys.argv[1] == "turn" else stand()
"""
Start = t.Callable[..., int]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> t.Iterator[Start]:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    started: list[subprocess.Popen[bytes]] = []

    def begin(how: str, **variables: str) -> int:
        kept = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        argv = [sys.executable, str(program), how]
        one = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**kept, **variables}, start_new_session=True)
        started.append(one)
        assert one.stdout is not None and one.stdout.readline() == b"ready\n"
        return one.pid

    yield begin
    for one in started:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def mine(found: list[dict[str, t.Any]], gang: str) -> list[dict[str, t.Any]]:
    return [item for item in found if item["gang"].startswith(gang)]


def test_ranks_are_known_by_their_launchers_variables(start: Start) -> None:
    store = {"MASTER_ADDR": "10.9.8.7", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    torchrun = start("child", RANK="3", TORCHELASTIC_RUN_ID="none", **store)
    mpi = start("stand", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", PMIX_NAMESPACE="10.9.8.7-mpi")
    start("stand", RANK="1", **store, **{processes.MARKER: "run/agent"})
    start("stand", RANK="1")
    found = mine(foreign_ranks.find_ranks(), "10.9.8.7")
    # Not what a rank has started, not a run of this collection, nothing without a world size.
    assert found == [
        {"rank": 3, "world_size": 4, "gang": "10.9.8.7:29500", "pid": torchrun, "program": "train.py"},
        {"rank": 0, "world_size": 2, "gang": "10.9.8.7-mpi", "pid": mpi, "program": "train.py"},
    ]


def test_one_that_stands_is_told_from_one_that_works(start: Start) -> None:
    store = {"MASTER_ADDR": "10.9.8.6", "MASTER_PORT": "1", "WORLD_SIZE": "2"}
    stands = start("stand", RANK="0", **store)
    start("turn", RANK="1", **store)
    found = mine(foreign_ranks.observe_ranks(0.9), "10.9.8.6")
    assert [(item["rank"], item["stands"]) for item in found] == [(0, True), (1, False)]
    assert found[0]["frames"][0][0] == "stand" and found[0]["place"]["name"] == "stand" and found[0]["pid"] == stands
    assert os.path.exists(f"/proc/{stands}")
