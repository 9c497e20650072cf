# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that was of no use to one cluster is not rented by the next one: by playbooks, on a fake of Vast.ai."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast

DUD = 500


def machines(api: t.Any) -> list[int]:
    """Return the machines of all orders so far."""
    return [item.fields["machine_id"] for item in api.things.values()]


def test_a_machine_that_ended_by_itself_is_left_out_by_the_next_cluster(tmp_path: pathlib.Path) -> None:
    world = RentWorld(tmp_path, lambda clock: FakeVast(clock, asks=3, boot_s=30.0), "vastai")
    world.api.statuses = ["exited"]  # type: ignore[attr-defined]
    with world.running():
        rented = world.play("rent", rented_nodes_count=1)
        assert rented.code == 0, rented.output
        assert machines(world.api) == [DUD, DUD + 1], "the dud is replaced"
        notes = [json.loads(line) for line in (tmp_path / "state" / "machines.jsonl").read_text().splitlines()]
        assert [(item["provider"], item["host"], item["fault"]) for item in notes] == [("vastai", str(DUD), "unusable")]
        assert world.play("teardown", muster_teardown_confirm=True).code == 0
        assert world.alive == 0
        again = world.play("rent", rented_nodes_count=1, muster_cluster="other")
        assert again.code == 0, again.output
        assert machines(world.api)[2:] == [DUD + 1]
        assert "1 of 3 offers are left out: their machines are avoided" in again.output
        assert world.play("teardown", muster_cluster="other", muster_teardown_confirm=True).code == 0
        assert world.alive == 0 and world.api.violations == []
