# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that runs the bench on a group of nodes."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import plan as bench_plan
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import (
    bench_group,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    world = RunWorld(tmp_path)
    yield world
    world.close()


def request(world: RunWorld, check: bool = False, **options: t.Any) -> training_job.RunRequest:
    """Return a request of the fabric_verify module."""
    values: Dict = {"collective": "all_reduce", "seconds": 0.1, "timeout_s": 60.0, "allow_unproven": False}
    return world.request(None, check=check, **{**values, **options})


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_both_benches_are_asked_for_the_same_thing(world: RunWorld, collective: str) -> None:
    stage = bench_plan.BenchStage("rails", ((("a", "b"),),), 8, (1 << 27, 1 << 30), 0.5, 60.0, split_mod=8)
    asked = request(world, python="/opt/python")
    own = bench_group.build_job(asked.options, ("a", "b"), stage, bench_group.Bench("nccl", collective), out="x.json")
    assert own["args"][:4] == ["--backend", "nccl", "--collective", collective]
    assert own["args"][-4:-2] == ["--split-mod", "8"] and own["python"] == "/opt/python" and "launcher" not in own
    theirs = bench_group.build_job(
        asked.options, ("a", "b"), stage, bench_group.Bench("nccl", collective, "nccl_tests", "/n"), out="x.json"
    )
    assert theirs["env"]["NCCL_TESTS_SPLIT"] == "MOD 8" and theirs["launcher"] == "mpi" and "args" not in theirs
    program = {"all_to_all": "alltoall_perf"}.get(collective, f"{collective}_perf")
    assert f"/n/{program}" in theirs["command"][-1]
    # Hung processes of either are killed a little after the stage's own limit.
    assert own["timeout_s"] == theirs["timeout_s"] == 65 and own["gpus_per_node"] == theirs["gpus_per_node"] == 8
    gloo = bench_group.build_job(asked.options, ("a", "b"), stage, bench_group.Bench("gloo", collective), out="x.json")
    assert gloo["gpus_per_node"] == 0 and not any(name.startswith("NCCL") for name in gloo["env"])


def test_ranks_that_recorded_no_end_are_silent() -> None:
    started = [{"kind": "worker_started", "rank": rank, "node": f"n{rank}"} for rank in range(3)]
    ended = [{"kind": "worker_exit", "rank": 1, "exit_code": 0}]
    assert bench_group.find_silent_ranks([*started, *ended, {"kind": "worker_started"}]) == {0: "n0", 2: "n2"}


def test_without_a_document_there_is_no_result() -> None:
    assert bench_group.parse_result([]) == (None, "the bench did not write a result")
    result, problem = bench_group.parse_result(["{torn"])
    assert result is None and "is not a complete JSON document" in problem


def test_the_environment_of_the_test_overrides_the_users() -> None:
    stage = bench_plan.BenchStage("island", ((("a", "b"),),), 1, (1 << 20,), 0.5, 60.0, {"NCCL_ALGO": "RING"})
    bench = bench_group.Bench("nccl", "all_reduce")
    env = {"NCCL_ALGO": "TREE", "PYTHONPATH": "/opt"}
    job = bench_group.build_job({}, ("a", "b"), stage, bench, out="-", env=env, nccl_logs=False)
    assert job["env"]["NCCL_ALGO"] == "RING" and job["env"]["PYTHONPATH"] == "/opt"
    assert "NCCL_DEBUG_FILE" not in job["env"] and job["args"][-2:] == ["--out", "-"]
