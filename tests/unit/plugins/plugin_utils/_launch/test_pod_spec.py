# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launchers in pods: what every pod of a role is told, and one real gang of torchrun that lives by it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import pod_spec
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import RunContext
from ansible_collections.muster.training.tests.support.node_lab import free_port
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab

RUN = RunContext("x-1", 20_000, 3, None)
# Above a launcher these make every library that discovers MPI believe them.
RANKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK"}


def job(**changes: t.Any) -> Job:
    own = {"script": "train.py", "code": {"from": "path", "ref": "."}} if "command" not in changes else {}
    value = {"name": "x", "nodes": 4, "image": "i", "gpus_per_node": 8, **own, **changes}
    value["placement"] = {"backend": "kubernetes", **changes.get("placement", {})}
    return parse_job(value)


def told(**changes: t.Any) -> pod_spec.PodSpec:
    return registry.pods(job(**changes), RUN)["node"]


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed"])
def test_torchrun_meets_at_the_first_pod_with_whole_numbers(launcher: str) -> None:
    spec = told(launcher=launcher, restart={"wait_s": 120}, checkpoints={"grace_s": 45})
    wanted = {
        "PET_NNODES": "4",
        "PET_NPROC_PER_NODE": "8",
        "PET_NODE_RANK": "{rank}",
        "PET_MASTER_ADDR": "{address}",
        "PET_MASTER_PORT": "20000",
        "PET_RDZV_ID": "x-1-{attempt}",
        "PET_MAX_RESTARTS": "0",
        "PET_SHUTDOWN_TIMEOUT": "45",
        "PET_RDZV_CONF": "timeout=120",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "NNODES": "4",
        "NPROC_PER_NODE": "8",
        "MUSTER_RUN_ID": "x-1",
        "MUSTER_CHECKPOINT_DIR": "/muster/run/checkpoints",
    }
    assert {key: spec.env.get(key) for key in wanted} == wanted
    assert not RANKS & set(spec.env) and "PET_RDZV_BACKEND" not in spec.env
    assert spec.argv[:4] == ("python3", "-m", "torch.distributed.run", "--no-python")
    assert spec.argv[-3:] == ("python3", "-u", "/muster/run/code/train.py")
    assert (spec.policy, spec.gpus, spec.grace_s, spec.wait_s) == ("torchrun", 8, 45, 120)


def test_an_engine_that_starts_nothing_again_leaves_it_to_torchrun() -> None:
    assert told(placement={"engine": "indexed_job"}).env["PET_MAX_RESTARTS"] == "3"
    assert told(placement={"engine": "volcano"}).env["PET_MAX_RESTARTS"] == "0"


def test_an_elastic_gang_meets_in_a_store_of_the_first_pod() -> None:
    spec = told(elastic={"min": 2}, restart={"max_crashes": 2, "max_lost_nodes": 5})
    assert spec.elastic and spec.env["PET_RDZV_BACKEND"] == "c10d"
    assert spec.env["PET_NNODES"] == "2:4" and spec.env["PET_MAX_RESTARTS"] == "7"
    assert spec.env["PET_RDZV_ENDPOINT"] == "{address}:20000"
    # Who hosts the store is said, not guessed from names.
    assert spec.env["PET_RDZV_CONF"].startswith("is_host={first},") and "PET_NODE_RANK" not in spec.env


def test_a_configuration_is_a_file_of_the_pod() -> None:
    spec = told(launcher="deepspeed", deepspeed_config={"a": 1}, args=["--ds", "{deepspeed_config}"])
    assert json.loads(spec.files["deepspeed.json"]) == {"a": 1} and spec.argv[-1] == "/muster/run/deepspeed.json"
    assert spec.env["MUSTER_DEEPSPEED_CONFIG"] == "/muster/run/deepspeed.json"
    spec = told(launcher="accelerate", deepspeed_config={"a": 1})
    assert spec.env["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "/muster/run/deepspeed.json"


def test_a_command_is_one_rank_a_pod() -> None:
    spec = told(launcher="command", command=["nvidia-smi"], gpus_per_node=0)
    assert {key: spec.env[key] for key in RANKS} == {"RANK": "{rank}", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    assert spec.argv[-1] == "nvidia-smi" and spec.env["CUDA_VISIBLE_DEVICES"] == "" and spec.policy == "whole"


def test_code_in_the_image_and_another_interpreter_are_used_as_they_are() -> None:
    spec = told(code={"from": "image", "ref": "/workspace/", "workdir": "src"}, python="/opt/venv/bin/python")
    assert spec.workdir == "/workspace/src" and spec.argv[-3:] == (
        "/opt/venv/bin/python",
        "-u",
        "/workspace/src/train.py",
    )
    assert spec.argv[0] == spec.argv[5] == "/opt/venv/bin/python"


def test_the_users_word_and_the_secrets_travel_apart_from_ours() -> None:
    spec = told(
        env={"NCCL_DEBUG": "INFO"},
        secret_refs=[{"name": "T", "from": "env"}, {"name": "P", "from": "kubernetes", "path": "p", "as": "registry"}],
    )
    assert spec.user_env == {"NCCL_DEBUG": "INFO"} and "NCCL_DEBUG" not in spec.env
    assert spec.secrets == ({"name": "T", "file": "/muster/secrets/T", "deliver": "env"},)


def test_an_mpi_gang_is_a_launcher_and_workers_with_one_key() -> None:
    specs = registry.pods(job(launcher="mpi"), RUN)
    launcher, worker = specs["launcher"], specs["worker"]
    assert launcher.argv[:3] == ("mpirun", "-np", "32") and launcher.gpus == 0 and launcher.role == "launcher"
    assert worker.argv[0] == "/usr/sbin/sshd" and worker.rank_from_name and worker.gpus == 8
    assert launcher.env["OMPI_MCA_plm_rsh_args"] == launcher.env["PRTE_MCA_plm_ssh_args"]
    assert (
        "-p 2222 -i /muster/run/mpi_key -o UserKnownHostsFile=/muster/run/mpi_known_hosts"
        in launcher.env["PRTE_MCA_plm_ssh_args"]
    )
    assert launcher.argv[-1] == "/muster/run/mpi_rank.sh" and worker.ssh and worker.ssh["argv"][-1].endswith("train.py")


def test_a_ray_driver_is_told_what_its_worker_group_needs() -> None:
    spec = registry.pods(job(launcher="ray", restart={"max_crashes": 2, "max_lost_nodes": 4}), RUN)["driver"]
    assert spec.env["MUSTER_NUM_WORKERS"] == "32" and spec.env["MUSTER_USE_GPU"] == "1"
    assert (spec.env["MUSTER_RAY_MAX_FAILURES"], spec.env["MUSTER_RAY_MAX_PREEMPTION_FAILURES"]) == ("2", "4")
    assert spec.argv[-1] == "/muster/run/code/train.py" and not RANKS & set(spec.env)
    # The head, on which it runs, has no devices that it could look for.
    assert spec.gpus == 0


def test_every_file_of_the_pods_program_is_listed() -> None:
    here = pathlib.Path(pod_spec.__file__).parents[1] / "_node"
    own = {path.name for path in here.glob("pod*.py")}
    assert own <= set(pod_spec.PROGRAM_FILES)
    texts = {name: (here / name).read_text() for name in pod_spec.PROGRAM_FILES}
    # Pods have no peers: that one is for nodes that share no folder.
    late = set(re.findall(r'_import_neighbour\("(\w+)"\)', texts["rank.py"])) - {"checkpoint_peers"}
    assert late and {f"{name}.py" for name in late} <= texts.keys()
    for name, text in texts.items():
        lines = [line for line in text.splitlines() if line.startswith("from .")]
        wanted = {
            word.strip() for line in lines for word in line.replace("from .", "").replace("import", ",").split(",")
        }
        assert {f"{word}.py" for word in wanted if (here / f"{word}.py").exists()} <= set(texts), name
    # With the rest of the object it stays far below the 1024 KiB that a ConfigMap holds.
    assert sum(map(len, texts.values())) < 384 << 10


@pytest.mark.torch
@pytest.mark.skipif(not os.environ.get("MUSTER_TORCH_PYTHON"), reason="MUSTER_TORCH_PYTHON names no interpreter")
def test_a_real_gang_of_torchrun_forms_and_ends_by_what_it_was_told(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(
        "import torch, torch.distributed as d\n"
        "d.init_process_group('gloo')\n"
        "x = torch.ones(1); d.all_reduce(x)\n"
        "print(f'rank {d.get_rank()} of {d.get_world_size()}: {x.item():.0f}', flush=True)\n"
        "d.destroy_process_group()\n"
        "import os; raise SystemExit(5 if os.environ['RANK'] == '1' else 0)\n"
    )
    wanted = job(
        nodes=2,
        gpus_per_node=0,
        processes_per_node=1,
        code=None,
        script=str(program),
        python=os.environ["MUSTER_TORCH_PYTHON"],
    )
    lab = PodLab(tmp_path)
    try:
        text = registry.pods(wanted, RunContext("x-1", free_port(), 1, str(tmp_path / "c")))["node"].to_json()
        running = []
        for rank in (1, 0):
            spec = json.loads(text.replace("/muster/run", str(lab.run_dir(rank))))
            running.append(lab.start({**spec, "run_dir": str(lab.run_dir(rank)), "coordinator": "localhost"}, rank))
        ends = [lab.end(running[0], within_s=300)]
        # As the engine does when one pod has failed: torchrun alone would wait for the other for minutes.
        running[1].terminate()
        ends.append(lab.end(running[1]))
    finally:
        lab.close()
    lines = sorted(line.split(":", 1)[1] for end in ends for line in end.lines if "of 2" in line)
    assert lines == [f"rank {rank} of 2: 2" for rank in range(2)]
    story = RunHistory()
    for end in ends:
        for mark in end.marks:
            if mark["stream"] == "events":
                story.event(mark["data"])
    assert story.ranks_seen() == 2 and story.attempts[-1].world_size == 2
    # torchrun itself says 1 where its rank said 5.
    assert [end.code for end in ends] == [5, 143]
