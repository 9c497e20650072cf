# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before rented nodes go, the runs on them are stopped in order; nodes that stay keep theirs."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, until

# Cleaning would clean this machine: its nodes are addresses of it.
SAFE: dict[str, t.Any] = {"muster_hygiene": False, "muster_rented_hosts": "muster_nodes", "muster_cluster": "local"}


def owned_by(how: str) -> dict[str, dict[str, t.Any]]:
    return {name: {"muster_node": {"ownership": how, "provider": "x", "name": name, "id": name}} for name in NODES}


@pytest.mark.parametrize(("how", "stopped"), [("rented", True), ("owned", False)])
def test_teardown_stops_what_runs_on_rented_nodes(world: World, how: str, stopped: bool) -> None:
    play = world.start(job=world.rank_job(), hosts=owned_by(how), muster_cluster="local")
    until(lambda: len(world.ranks()) == 2, "both ranks")
    done = world.play("teardown", hosts=owned_by(how), **SAFE)
    assert done.code == 0, done.output
    if stopped:
        until(lambda: not world.processes(), "the end of the run's processes")
        assert world.record()["outcome"] == "cancelled"
    else:
        assert len(world.ranks()) == 2
        world.finish()
    play.wait()


def test_a_run_that_cannot_be_stopped_keeps_no_machine(world: World) -> None:
    folder = world.run_folder()
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{ damaged")
    done = world.play("teardown", hosts=owned_by("rented"), **SAFE)
    assert done.code == 0, done.output
