# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The advised interval between saves against the best of a sweep, in a simulation that knows nothing of the rule."""

from __future__ import annotations

import random
import statistics

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import cadence

HOURS = 72
SEEDS = 40
SWEEP_S = (15, 30, 60, 120, 240, 480, 960, 1800, 3600, 7200)


def useful_share(interval_s: float, blocked_s: float, mtbf_s: float, seed: int) -> float:
    """Play 72 hours of work, with faults at random moments; return the share of the time that stayed done."""
    rng = random.Random(seed)
    now, saved, fault = 0.0, 0.0, rng.expovariate(1 / mtbf_s)
    end = HOURS * 3600.0
    while now < end:
        # Work for an interval, then save: what is not saved when the fault comes is made again.
        if now + interval_s + blocked_s <= fault:
            now += interval_s + blocked_s
            saved += interval_s
        else:
            now = fault
            fault = now + rng.expovariate(1 / mtbf_s)
    return saved / now


def mean_share(interval_s: float, blocked_s: float, mtbf_s: float) -> float:
    return statistics.fmean(useful_share(interval_s, blocked_s, mtbf_s, seed) for seed in range(SEEDS))


@pytest.mark.parametrize(("mtbf_h", "blocked_s"), [(2, 20.0), (8, 20.0), (8, 1.0), (30, 60.0)])
def test_the_advice_is_no_worse_than_the_best_of_a_sweep(mtbf_h: int, blocked_s: float) -> None:
    best = max(mean_share(interval, blocked_s, mtbf_h * 3600.0) for interval in SWEEP_S)
    advised = cadence.advise(blocked_s, mtbf_h * 3600.0)
    found = mean_share(advised.interval_s, blocked_s, mtbf_h * 3600.0)
    assert 100 * (best - found) <= 0.5
    assert 1 - advised.lost == pytest.approx(found, abs=0.012), "what is said to be lost is lost"


@pytest.mark.parametrize("mtbf_h", [2, 8, 30])
def test_a_day_with_its_own_faults_is_enough_to_advise(mtbf_h: int) -> None:
    """The mean time between faults is estimated from one day, not known."""
    rng = random.Random(5)
    losses = []
    for _ in range(20):
        faults, at = 0, rng.expovariate(1 / (mtbf_h * 3600.0))
        while at < 24 * 3600.0:
            faults, at = faults + 1, at + rng.expovariate(1 / (mtbf_h * 3600.0))
        guess = cadence.advise(20.0, cadence.estimate_mtbf_s(24 * 3600.0, faults)).interval_s
        losses.append(cadence.lost_share(guess, 20.0, mtbf_h * 3600.0))
    assert 100 * (statistics.fmean(losses) - cadence.advise(20.0, mtbf_h * 3600.0).lost) <= 0.5


def test_more_faults_ask_for_more_saves_and_dearer_saves_for_fewer() -> None:
    quiet, busy = cadence.estimate_mtbf_s(3600.0 * 19, 0), cadence.estimate_mtbf_s(3600.0 * 19, 8)
    assert cadence.advise(20.0, busy).interval_s < cadence.advise(20.0, quiet).interval_s
    assert cadence.advise(60.0, busy).interval_s > cadence.advise(20.0, busy).interval_s
