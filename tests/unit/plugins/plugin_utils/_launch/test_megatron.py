# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Megatron: torchrun with the options that the job's sizes become."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model import parallel_sizes
from ansible_collections.muster.training.plugins.plugin_utils._launch import megatron, torchrun
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots


def test_it_is_torchrun_with_megatron_s_options() -> None:
    wanted = job(launcher="megatron", processes_per_node=2, parallel={"tensor": 2})
    plan, plain = megatron.launch(wanted, slots(), RUN), torchrun.launch(job(processes_per_node=2), slots(), RUN)
    assert (plan.policy, plan.store, plan.restarts) == (plain.policy, plain.store, plain.restarts)
    # Filled in on the node.
    own = "{checkpoint_dir}"
    for node, before in zip(plan.nodes, plain.nodes, strict=True):
        assert node.argv == (*before.argv, "--tensor-model-parallel-size", "2", "--save", own, "--load", own)
        assert dict(node.env) == dict(before.env)
    pod, bare = megatron.pods(wanted, RUN)["node"], torchrun.pods(job(processes_per_node=2), RUN)["node"]
    assert pod.argv[: len(bare.argv)] == bare.argv and "--tensor-model-parallel-size" in pod.argv


def test_the_variable_that_megatron_asserts_is_set_on_gpus() -> None:
    wanted = job(launcher="megatron", gpus_per_node=2, parallel={"tensor": 2})
    (node, *_others) = megatron.launch(wanted, slots(), RUN).nodes
    assert (
        node.env["CUDA_DEVICE_MAX_CONNECTIONS"]
        == "1"
        == parallel_sizes.build_env(wanted)["CUDA_DEVICE_MAX_CONNECTIONS"]
    )
