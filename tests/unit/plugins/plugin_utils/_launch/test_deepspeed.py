# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeepSpeed: torchrun with its configuration as a file."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._launch import deepspeed, environment, torchrun
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots


def test_without_a_configuration_it_is_torchrun() -> None:
    assert deepspeed.launch(job(launcher="deepspeed"), slots(), RUN) == torchrun.launch(job(), slots(), RUN)
    assert deepspeed.pods(job(launcher="deepspeed"), RUN) == torchrun.pods(job(), RUN)


def test_the_configuration_is_a_file_of_every_node_and_pod() -> None:
    wanted = job(launcher="deepspeed", deepspeed_config={"a": 1})
    plain = torchrun.launch(job(), slots(), RUN)
    plan = deepspeed.launch(wanted, slots(), RUN)
    for node, before, slot in zip(plan.nodes, plain.nodes, slots(), strict=True):
        place = f"{slot.run_dir}/deepspeed.json"
        assert node.argv == before.argv and dict(node.files) == environment.deepspeed_files(wanted)
        assert dict(node.env) == {**before.env, "MUSTER_DEEPSPEED_CONFIG": place}
    pod, place = deepspeed.pods(wanted, RUN)["node"], "/muster/run/deepspeed.json"
    assert dict(pod.files) == environment.deepspeed_files(wanted)
    assert dict(pod.env) == {**torchrun.pods(job(), RUN)["node"].env, "MUSTER_DEEPSPEED_CONFIG": place}
