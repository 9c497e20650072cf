# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drawn faults over rent, status, heal, reap and teardown: no untrue word, no machine that bills unsaid."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from ansible_collections.muster.training.tests.e2e import service_world
from ansible_collections.muster.training.tests.e2e.money_world import MoneyWorld, draw
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, Store

# A schedule lasts the better part of a minute; tests/faults/test_lying_listings.py plays shorter ones in one process.
pytestmark = pytest.mark.long
COUNT = 36


def play_out(world: MoneyWorld, seed: int, *, vanishes: bool = False) -> None:
    """Play a schedule; a controller that ``vanishes`` leaves nothing on its disk for the next one."""
    with world.running():
        first, *others = draw(seed)
        world.step(first)
        joined = [lease.name for lease in world.ledger.leases.values() if lease.state == "joined"]
        if joined and not vanishes:
            world.record(joined)
        for step in others:
            # The reaper's copy is of the ledger on this disk.
            if vanishes and step.playbook != "reaper":
                shutil.rmtree(world.root / "state", ignore_errors=True)
            world.step(step)
        world.finish()
    assert world.problems == [], "\n\n".join(map(str, [*draw(seed), *world.problems]))
    assert world.api.violations == []


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_schedule_of_faults_leaves_nothing_unsaid(tmp_path: pathlib.Path, seed: int) -> None:
    play_out(MoneyWorld(tmp_path), seed)


@pytest.mark.parametrize("seed", range(COUNT, COUNT + 6))
def test_nor_with_the_ledger_in_a_bucket(tmp_path: pathlib.Path, store: Store, seed: int) -> None:
    setting = {"store": "s3", "s3": {"endpoint": store.endpoint, "bucket": f"data/trial-{seed}"}}
    world = MoneyWorld(tmp_path, setting, **KEYS)
    world.program = pathlib.Path(service_world.services_python()).parent / "ansible-playbook"
    play_out(world, seed, vanishes=True)
