# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance of two local nodes with real torch: every part runs, and what loopback cannot show is not claimed."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import ONE_THREAD, World

pytestmark = pytest.mark.torch

SHORT: dict[str, t.Any] = {
    "fleet_acceptance_seconds": 0.5,
    "muster_cluster": "local",
    "muster_accept_job": {"env": ONE_THREAD},
}


def test_two_local_nodes(world: World, torch_python: str) -> None:
    """accept.json holds figures of 1 and 2 nodes, whose loss adds up, and the proof of a resume; nothing is left."""
    python: dict[str, t.Any] = {"muster_training_python": torch_python, "muster_run_id": None}
    checked = world.play("accept", args=["--check"], **SHORT, **python)
    assert checked.code == 0 and not list(world.state.rglob("accept.json")), checked.output
    result = world.play("accept", limit_s=280, muster_fabric_allow_unproven=True, **SHORT, **python)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    value = json.loads((world.state / "local" / "accept.json").read_text())
    parts = {part["name"]: part for part in value["parts"]}
    assert (value["outcome"], value["exit_code"], value["loopback"]) == ("unproven", 1, True)
    assert parts["resume"]["outcome"] == "pass" and parts["resume"]["drill"]["world_size"] == 2
    assert parts["queue"]["outcome"] == "not_applicable"
    first, second = parts["scaling"]["points"]
    assert (first["nodes"], second["nodes"], first["efficiency"]) == (1, 2, 1.0)
    assert second["communication_s"] > 0 and second["loss_s"] == pytest.approx(sum(second["loss"].values()), abs=1e-6)
    assert second["samples_per_s"] == pytest.approx(2 * 64 / second["step_s"], rel=0.01)
    page = (world.state / "local" / "accept.html").read_text()
    assert "not all proven" in page and "loopback of one machine" in page
    assert world.processes() == {}
