# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every process of a job sees, and the command of one rank."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._launch import environment
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots


def test_the_variables_of_the_contract() -> None:
    nodes = slots()
    values = environment.node_variables(job(processes_per_node=4, env={"MY": "own"}), nodes[1], nodes, RUN)
    assert values == {
        "MUSTER_RUN_ID": "x-1",
        "MUSTER_NODE": "b",
        "MUSTER_ATTEMPT_BASE": "3",
        "MUSTER_ATTEMPT_COUNTER": "/state/b/runs/x-1/attempts-3",
        "MUSTER_METRICS_FILE": "/state/b/runs/x-1/metrics.jsonl",
        "MUSTER_CHECKPOINT_DIR": "/state/b/runs/x-1/checkpoints",
        "MUSTER_RESUME": "auto",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "4",
        "PYTHONUNBUFFERED": "1",
        "NCCL_SOCKET_IFNAME": "=eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "CUDA_VISIBLE_DEVICES": "",
        "MY": "own",
    }


def test_no_rank_is_set_above_the_launcher() -> None:
    nodes = slots()
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(
        environment.node_variables(job(), nodes[0], nodes, RUN)
    )


def test_a_gpu_job_sees_the_gpus_and_the_users_word_is_the_last() -> None:
    nodes = slots()
    assert "CUDA_VISIBLE_DEVICES" not in environment.node_variables(job(gpus_per_node=8), nodes[0], nodes, RUN)
    own = {"NCCL_SOCKET_IFNAME": "ib0", "PYTHONUNBUFFERED": "0"}
    values = environment.node_variables(job(env=own), nodes[0], nodes, RUN)
    assert {key: values[key] for key in own} == own


def test_an_unknown_interface_is_left_to_the_library() -> None:
    assert environment.interface_variables(slots(interface=None)[0]) == {}


def test_checkpoints_and_datasets_have_their_places() -> None:
    nodes = slots()
    wanted = job(datasets=[{"name": "my-text", "path": "d"}], checkpoints={"keep": 5, "resume": "required"})
    values = environment.node_variables(wanted, nodes[0], nodes, dataclasses.replace(RUN, checkpoint_dir="/mnt/x-1"))
    assert values["MUSTER_DATASET_MY_TEXT"] == "/state/a/runs/x-1/data/my-text"
    assert [values[f"MUSTER_{key}"] for key in ("CHECKPOINT_DIR", "CHECKPOINT_KEEP", "RESUME")] == [
        "/mnt/x-1",
        "5",
        "required",
    ]


def test_each_start_has_an_empty_folder_where_it_must_not_resume() -> None:
    nodes = slots()
    for run, folder in (
        (dataclasses.replace(RUN, checkpoint_part="attempt-3"), "/state/a/runs/x-1/checkpoints/attempt-3"),
        (dataclasses.replace(RUN, checkpoint_dir="/mnt/x-1", checkpoint_part="attempt-3"), "/mnt/x-1/attempt-3"),
        (dataclasses.replace(RUN, checkpoint_dir="~/x-1"), "/home/me/x-1"),
    ):
        slot = dataclasses.replace(nodes[0], home="/home/me")
        assert environment.node_variables(job(), slot, nodes, run)["MUSTER_CHECKPOINT_DIR"] == folder


@pytest.mark.parametrize(
    ("changes", "program"),
    [
        ({"args": ["--n", 3]}, ("/py0", "-u", "/state/a/runs/x-1/code/train.py", "--n", "3")),
        ({"script": "/opt/t.py", "code": None}, ("/py0", "-u", "/opt/t.py")),
        ({"code": {"ref": ".", "workdir": "src/"}}, ("/py0", "-u", "/state/a/runs/x-1/code/src/train.py")),
        ({"script": None, "module": "pkg.train"}, ("/py0", "-u", "-m", "pkg.train")),
        (
            {
                "script": None,
                "launcher": "command",
                "command": ["bash", "-c"],
                "args": ["ls {run_dir} {output} ${x} {}"],
            },
            ("bash", "-c", "ls /state/a/runs/x-1 {output} ${x} {}"),
        ),
    ],
)
def test_the_users_command(changes: dict[str, object], program: tuple[str, ...]) -> None:
    assert environment.program(job(**changes), slots()[0]) == program


def test_one_rank_runs_inside_the_recorder() -> None:
    command = environment.rank_command(job(), slots()[1])
    recorder = ("/usr/bin/python3", "-I", "-S", "{program}/muster_node/rank.py", "/state/b/runs/x-1/events.jsonl")
    assert command == (*recorder, "/py1", "-u", "/state/b/runs/x-1/code/train.py")


def test_where_the_command_runs() -> None:
    slot = slots()[0]
    assert environment.workdir(job(script="/t.py", code=None), slot) == "/state/a/runs/x-1"
    assert environment.workdir(job(), slot) == "/state/a/runs/x-1/code"
    assert environment.workdir(job(code={"ref": ".", "workdir": "/a/b/"}), slot) == "/state/a/runs/x-1/code/a/b"


def test_the_deepspeed_configuration_is_placed_as_json() -> None:
    config = {"bf16": {"enabled": True}, "train_batch_size": 8}
    files = environment.deepspeed_files(job(launcher="deepspeed", deepspeed_config=config))
    assert {name: json.loads(text) for name, text in files.items()} == {"deepspeed.json": config}
    assert environment.deepspeed_files(job()) == {}


@given(name=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True))
def test_a_datasets_name_is_a_valid_part_of_a_variable(name: str) -> None:
    part = environment.variable_name(name)
    assert len(part) == len(name) and part.replace("_", "A").isalnum() and part == part.upper()
