# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the node agent runs: on full and read-only disks, on the oldest Python, with all its operations."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t
import uuid
import zlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_agent
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.tests.support.node_lab import (
    NodeLab,
    NodeShell,
    eventually,
    fill,
    small_disk,
    unit_exit,
)

RUN = f"r-{uuid.uuid4().hex[:8]}"
Dict = dict[str, t.Any]


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[NodeLab]:
    lab = NodeLab(tmp_path)
    yield lab
    lab.close()


def payload_piece(data: bytes) -> Dict:
    packed = base64.b64encode(zlib.compress(data)).decode()
    return {"sha256": hashlib.sha256(data).hexdigest(), "offset": 0, "data": packed, "last": True}


def test_a_full_disk_is_a_problem_of_the_node(lab: NodeLab) -> None:
    with small_disk(lab.nodes, "4m"):
        remote = lab.installed("a")
        lab.prepare(remote, RUN)
        filler = fill(lab.nodes)
        for op, values in (
            ("put", {"pieces": [payload_piece(os.urandom(1 << 16))]}),
            ("prepare", {"run_id": f"{RUN}-2", "claim": {"owner": "me"}, "program": remote.program}),
            (
                "prepare",
                {"run_id": RUN, "claim": {"owner": "me"}, "program": remote.program, "write": [f"{lab.nodes}/ckpt"]},
            ),
            ("start", {"run_id": RUN, "program": remote.program, "spec": lab.spec("a", RUN, ["true"])}),
        ):
            answer = remote.ask(op, **t.cast(Dict, values))
            assert "No space left on device" in answer["problem"], op
        assert remote.call("info")["state"]["problem"] == "is on a full file system"
        filler.unlink()
        assert lab.prepare(remote, f"{RUN}-2")["problem"] is None and lab.left() == {}


def test_a_read_only_disk_is_a_problem_of_the_node(lab: NodeLab) -> None:
    with small_disk(lab.nodes, "1m", ",ro"):
        remote = lab.remote("a")
        assert remote.call("info")["state"]["problem"] == "is on a read-only file system"
        assert "Read-only file system" in remote.ask("install", **agent_package.install_request())["problem"]
        assert "Read-only file system" in remote.ask("put", pieces=[payload_piece(b"x")])["problem"]


def pythons() -> list[str]:
    """Return the interpreters at hand, the oldest first."""
    names = [shutil.which(f"python3.{minor}") for minor in range(10, 15)]
    found = [
        name
        for name in names
        if name and subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    return found or [sys.executable]


def recorder(lab: NodeLab, program: str) -> list[str]:
    """Return the command of one rank inside its recorder."""
    own = [sys.executable, "-I", "-S", f"{program}/muster_node/rank.py", f"{lab.run('a', RUN)}/events.jsonl"]
    return [*own, "true"]


def test_the_oldest_python_at_hand_runs_the_agent(lab: NodeLab) -> None:
    oldest = pythons()[0]
    remote = lab.remote("a", python=oldest, shell=NodeShell({**os.environ, **lab.env, "PATH": os.environ["PATH"]}))
    remote.program = remote.call("install", **agent_package.install_request())["program"]
    lab.prepare(remote, RUN)
    assert lab.start(remote, RUN, recorder(lab, str(remote.program)))["started"] is True
    assert unit_exit(lab.run("a", RUN))["exit_code"] == 0
    eventually(lambda: len(lab.events("a", RUN)) == 4, "the last event")


@pytest.mark.parametrize("name", sorted(agent_package.read_sources()))
def test_the_sources_hold_no_syntax_newer_than_nodes_have(name: str) -> None:
    ast.parse(agent_package.read_sources()[name], feature_version=(3, 10))


def test_every_operation_is_one_function() -> None:
    names = {"info", "put", "install", "prepare", "claim", "start", "watch", "stop", "kill", "read", "remove"}
    assert set(host_agent._OPS) == names | {
        "attach",
        "cut",
        "environment",
        "examine",
        "reach",
        "results",
        "s3",
        "stacks",
    }
    assert host_agent.MARK == agent_package.MARK
