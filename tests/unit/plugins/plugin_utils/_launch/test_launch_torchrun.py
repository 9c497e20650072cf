# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torchrun and what runs under it: one elastic agent a node that meets the others at the first node's store."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import ELASTIC_PROGRAM, STORE_PROGRAM
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots


def options(argv: tuple[str, ...]) -> dict[str, str]:
    return dict(item[2:].split("=", 1) for item in argv if item.startswith("--") and "=" in item)


def test_the_agents_agree_on_everything_but_their_own_address() -> None:
    plan = registry.launch(job(processes_per_node=2, restart={"max_crashes": 2, "max_lost_nodes": 5}), slots(), RUN)
    first, second = (options(node.argv) for node in plan.nodes)
    assert {key: first[key] for key in first if first[key] != second[key]} == {
        "local-addr": "10.0.0.1",
        "log-dir": "/state/a/runs/x-1/ranks",
    }
    assert (first["nnodes"], first["nproc-per-node"], first["rdzv-endpoint"]) == ("2", "2", "10.0.0.1:20000")
    # Both budgets, because a surviving agent pays for the losses of the others too.
    assert (first["max-restarts"], first["rdzv-id"]) == ("7", "x-1-3")
    assert plan.policy == "torchrun" and plan.keypair is False and all(node.wait_for_peer for node in plan.nodes)


def test_no_agent_is_the_rendezvous_itself() -> None:
    plan = registry.launch(job(restart={"wait_s": 77}), slots(), RUN)
    assert plan.store == ("/py0", STORE_PROGRAM, "{listen_fd}", "10.0.0.1", "20000")
    settings = dict(item.split("=") for item in options(plan.nodes[0].argv)["rdzv-conf"].split(","))
    assert settings["is_host"] == "0" and settings["join_timeout"] == "77"
    assert all(node.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1" for node in plan.nodes)


def test_ranks_have_the_grace_to_save() -> None:
    plan = registry.launch(job(checkpoints={"grace_s": 120}), slots(), RUN)
    assert plan.nodes[0].env["PET_SHUTDOWN_TIMEOUT"] == "120"


@pytest.mark.parametrize(("codes", "expected"), [([3, 65], "3,65"), ([], None)])
def test_ranks_know_which_exit_codes_must_not_be_repeated(codes: list[int], expected: str | None) -> None:
    plan = registry.launch(job(restart={"fatal_exit_codes": codes}), slots(), RUN)
    assert {node.env.get("MUSTER_FATAL_EXIT_CODES") for node in plan.nodes} == {expected}


def test_the_rank_command_ends_the_argument_list() -> None:
    argv = registry.launch(job(args=["--nnodes=9"]), slots(), RUN).nodes[1].argv
    at = argv.index("--no-python")
    assert argv[:2] == ("/py1", ELASTIC_PROGRAM)
    assert argv[at + 4] == "{program}/muster_node/rank.py" and argv[-1] == "--nnodes=9"


@pytest.mark.parametrize(
    ("launcher", "variable"),
    [("deepspeed", "MUSTER_DEEPSPEED_CONFIG"), ("accelerate", "ACCELERATE_DEEPSPEED_CONFIG_FILE")],
)
def test_deepspeed_and_accelerate_are_torchrun_with_a_configuration(launcher: str, variable: str) -> None:
    plain = registry.launch(job(), slots(), RUN)
    same = registry.launch(job(launcher=launcher), slots(), RUN)
    assert (same.nodes, same.store, same.policy) == (plain.nodes, plain.store, plain.policy)
    plan = registry.launch(job(launcher=launcher, deepspeed_config={"a": 1}), slots(), RUN)
    for node, before, slot in zip(plan.nodes, plain.nodes, slots(), strict=True):
        assert node.argv == before.argv and node.env[variable] == f"{slot.run_dir}/deepspeed.json"
        assert list(node.files) == ["deepspeed.json"]
    assert ("ACCELERATE_USE_DEEPSPEED" in plan.nodes[0].env) is (launcher == "accelerate")


@pytest.mark.parametrize(
    ("changes", "packages"),
    [
        ({}, ("torch",)),
        ({"launcher": "deepspeed", "requires": {"torch": ">=2", "numpy": ""}}, ("torch", "deepspeed", "numpy")),
        ({"launcher": "accelerate"}, ("torch", "accelerate")),
        ({"launcher": "mpi"}, ()),
    ],
)
def test_the_packages_that_an_interpreter_must_have(changes: dict[str, object], packages: tuple[str, ...]) -> None:
    assert registry.required_packages(job(**changes)) == packages
