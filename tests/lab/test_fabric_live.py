# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis of a real torch run on real links, by a controller that did not start it (needs root and torch)."""

from __future__ import annotations

import pathlib
import signal
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.fabric.netns import FABRIC, Wire
from ansible_collections.muster.training.tests.lab.fabric.world import Setting, World, missing
from ansible_collections.muster.training.tests.lab.test_fabric_links import need

Dict = dict[str, t.Any]
TRAIN = """
import json, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
values, step = torch.zeros(1 << 19), 0
while True:
    dist.all_reduce(values)
    step += 1
    if dist.get_rank() == 0:
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as out:
            out.write(json.dumps({"at": time.time(), "step": step}) + "\\n")
    time.sleep(0.05)
"""
SECONDS = 15.0


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    need(missing())
    return World(tmp_path / "live", Setting((Wire(500),) * 2, 500))


def until(world: World, wanted: t.Callable[[Dict], bool], within_s: float = 90.0) -> tuple[Dict, float]:
    """Diagnose until the answer is as wanted; a hang takes a moment to show."""
    end = time.monotonic() + within_s
    while True:
        found, seconds = world.diagnose()
        if wanted(found):
            return found, seconds
        assert time.monotonic() < end, found


def causes(found: Dict) -> list[tuple[str, str | None]]:
    return [(item["code"], item.get("node")) for item in found["causes"]]


def test_a_run_that_moves_then_loses_its_cable(world: World) -> None:
    with world.training(TRAIN):
        found, _ = until(world, lambda found: found["state"] == "moving")
        assert found["outcome"] in ("pass", "warn") and found["ranks"] == {"expected": 2, "alive": 2}
        sent = [one["seen"]["counters"]["netdev"][FABRIC]["tx_bytes"] for one in found["nodes"].values()]
        assert min(sent) > 100_000
        world.net.unplug("node-2")
        found, seconds = until(world, lambda found: any(code == "path_lost" for code, _ in causes(found)))
        assert seconds < 3 * SECONDS
        lost = [item for item in found["causes"] if item["code"] == "path_lost"]
        # Either end shows it, and each names the other.
        assert all(item["node"] in ("node-1", "node-2") for item in lost)
        other = {"node-1": "node-2", "node-2": "node-1"}
        assert all(f"({other[item['node']]})" in item["evidence"] for item in lost)


def test_a_rank_that_is_stopped_is_named_and_not_its_peer(world: World) -> None:
    with world.training(TRAIN):
        until(world, lambda found: found["state"] == "moving")
        world.signal(world.ranks("node-2"), signal.SIGSTOP)
        found, _ = until(world, lambda found: found["state"] == "hanging")
        assert found["outcome"] == "fail" and causes(found) == [("rank_stopped", "node-2")]
        assert "stalled" in [item["code"] for item in found["also"]]
