# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher ``command``: one rank a node, from which the program can build a world."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import RUN, job, slots


def command(**changes: object) -> Job:
    return job(script=None, code=None, launcher="command", command=["./run", "{run_dir}"], **changes)


def test_each_node_is_one_rank_of_the_world() -> None:
    plan = registry.launch(command(), slots(3), RUN)
    for index, node in enumerate(plan.nodes):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        assert [node.env[name] for name in names] == [str(index), "3", "0", "10.0.0.1", "20000"]
        assert node.argv[-2:] == ("./run", f"/state/{'abc'[index]}/runs/x-1") and node.wait_for_peer is False
    assert (plan.policy, plan.store) == ("never", None) and plan.restarts.startswith("none")


def test_the_world_that_is_started_is_the_one_that_attendance_asks_for() -> None:
    wanted = command(gpus_per_node=8)
    assert registry.launch(wanted, slots(), RUN).nodes[0].env["WORLD_SIZE"] == str(wanted.world_size)
