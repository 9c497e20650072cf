# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerate: torchrun with the variables that ``accelerate launch`` would set."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._launch import accelerate, environment, torchrun
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots

GPUS = {"gpus_per_node": 2}


def test_with_gpus_and_without_a_configuration_it_is_torchrun() -> None:
    assert accelerate.launch(job(launcher="accelerate", **GPUS), slots(), RUN) == torchrun.launch(
        job(**GPUS), slots(), RUN
    )
    assert accelerate.pods(job(launcher="accelerate", **GPUS), RUN) == torchrun.pods(job(**GPUS), RUN)


def test_without_gpus_the_ranks_are_told_that_they_are_one_world_on_cpus() -> None:
    wanted, plain = job(launcher="accelerate"), torchrun.launch(job(), slots(), RUN)
    for node, before in zip(accelerate.launch(wanted, slots(), RUN).nodes, plain.nodes, strict=True):
        assert dict(node.env) == {**before.env, "ACCELERATE_USE_CPU": "true"} and not node.files
    pod = accelerate.pods(wanted, RUN)["node"]
    assert dict(pod.env) == {**torchrun.pods(job(), RUN)["node"].env, "ACCELERATE_USE_CPU": "true"}
    own = job(launcher="accelerate", env={"ACCELERATE_USE_CPU": "false"})
    assert accelerate.launch(own, slots(), RUN).nodes[0].env["ACCELERATE_USE_CPU"] == "false"
    assert accelerate.pods(own, RUN)["node"].user_env["ACCELERATE_USE_CPU"] == "false"


def test_the_configuration_is_a_file_of_every_node_and_pod() -> None:
    wanted = job(launcher="accelerate", deepspeed_config={"a": 1}, **GPUS)
    plain = torchrun.launch(job(**GPUS), slots(), RUN)
    plan = accelerate.launch(wanted, slots(), RUN)
    for node, before, slot in zip(plan.nodes, plain.nodes, slots(), strict=True):
        place = f"{slot.run_dir}/deepspeed.json"
        assert node.argv == before.argv and dict(node.files) == environment.deepspeed_files(wanted)
        assert dict(node.env) == {
            **before.env,
            "ACCELERATE_USE_DEEPSPEED": "true",
            "ACCELERATE_DEEPSPEED_CONFIG_FILE": place,
        }
    pod, place = accelerate.pods(wanted, RUN)["node"], "/muster/run/deepspeed.json"
    assert dict(pod.files) == environment.deepspeed_files(wanted)
    assert dict(pod.env) == {
        **torchrun.pods(job(**GPUS), RUN)["node"].env,
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_CONFIG_FILE": place,
    }
