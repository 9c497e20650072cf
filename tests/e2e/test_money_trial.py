# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drawn faults over rent, status, heal, reap and teardown: no untrue word, no machine that bills unsaid."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tests.e2e.money_world import MoneyWorld, draw

COUNT = 36
# One that lasts half a minute; the others are for a whole run of the tests.
SHORT = {1}


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed in SHORT else [pytest.mark.long]) for seed in range(COUNT)]
)
def test_a_schedule_of_faults_leaves_nothing_unsaid(tmp_path: pathlib.Path, seed: int) -> None:
    world = MoneyWorld(tmp_path)
    with world.running():
        first, *others = draw(seed)
        world.step(first)
        joined = [lease.name for lease in world.ledger.leases.values() if lease.state == "joined"]
        if joined:
            world.record(joined)
        for step in others:
            world.step(step)
        world.finish()
    assert world.problems == [], "\n\n".join(map(str, [*draw(seed), *world.problems]))
    assert world.api.violations == []
