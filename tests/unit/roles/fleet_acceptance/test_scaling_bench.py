# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bench of an acceptance with two real ranks: what is made slow on purpose is found in its own phase."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import scaling
from ansible_collections.muster.training.tests.support.kube_api import free_port

pytestmark = pytest.mark.torch

FILES = pathlib.Path(__file__).parents[4] / "roles" / "fleet_acceptance" / "files"
# The bench with one of its methods delayed by 20 ms, on one rank or on all.
DELAYED = f"""
import os, sys, time
sys.path.insert(0, {str(FILES)!r})
import scaling_bench
name, rank = sys.argv[1], sys.argv[2]
whole = getattr(scaling_bench.Bench, name)
def slow(self):
    if rank in ("all", os.environ["RANK"]):
        time.sleep(0.02)
    return whole(self)
setattr(scaling_bench.Bench, name, slow)
scaling_bench.end(scaling_bench.main(sys.argv[3:]))
"""
SMALL = ["--seconds", "0.3", "--width", "32", "--layers", "2", "--batch", "8"]


@pytest.fixture
def run(tmp_path: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    if not os.path.exists(python):
        pytest.skip("MUSTER_TORCH_PYTHON names no interpreter with torch")

    def started(*words: str, ranks: int = 2) -> dict[str, t.Any]:
        (tmp_path / "delayed.py").write_text(DELAYED)
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        out = tmp_path / "metrics.jsonl"
        env = {**os.environ, **where, "MUSTER_METRICS_FILE": str(out), "GLOO_SOCKET_IFNAME": "lo"}
        argv = [python, str(tmp_path / "delayed.py"), *words, *SMALL]
        begun = [
            subprocess.Popen(argv, env={**env, "RANK": str(rank), "LOCAL_RANK": "0", "MUSTER_NODE": f"node-{rank}"})
            for rank in range(ranks)
        ]
        assert [process.wait(120) for process in begun] == [0] * ranks
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        found = [line["acceptance"] for line in lines if "acceptance" in line]
        assert len(found) == 1 and lines[0]["samples_per_s"] == found[0]["samples_per_s"]
        return t.cast("dict[str, t.Any]", found[0])

    return started


@pytest.mark.parametrize(
    ("method", "rank", "phase"), [("samples", "all", "input_s"), ("exchange", "all", "communication_s")]
)
def test_a_slow_phase_is_found(run: t.Callable[..., dict[str, t.Any]], method: str, rank: str, phase: str) -> None:
    found = run(method, rank)
    assert (found["ranks"], found["nodes"], found["device"]) == (2, 2, "cpu")
    parts = {key: found[key] for key in ("input_s", "compute_s", "straggler_s", "communication_s")}
    assert found[phase] >= 0.02 and max(parts, key=parts.__getitem__) == phase, found


def test_a_slow_rank_is_the_others_waiting(run: t.Callable[..., dict[str, t.Any]]) -> None:
    found = run("samples", "1")
    first, second = found["per_rank"]
    assert first["straggler_s"] >= 0.01 and second["straggler_s"] < first["straggler_s"] / 2, found
    slowest = scaling.read_point(found).slowest
    assert slowest is not None and slowest[0].node == "node-1" and slowest[1] > 1.5


def test_alone_nothing_is_exchanged(run: t.Callable[..., dict[str, t.Any]]) -> None:
    found = run("meet", "none", ranks=1)
    assert found["communication_s"] < 0.001 and found["straggler_s"] < 0.001
    assert found["per_rank"][0]["uid"] == os.getuid()
