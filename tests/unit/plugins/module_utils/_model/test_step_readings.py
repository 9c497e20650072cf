# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of several nodes, in any order, become those of each attempt."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import step_readings
from ansible_collections.muster.training.plugins.module_utils._model.step_readings import StepReading, StepReadings


def made(*steps: tuple[float, int], saved: tuple[float, ...] = ()) -> StepReadings:
    found = StepReadings()
    for at, step in steps:
        found.add_step(at, step)
    for at in saved:
        found.add_checkpoint(at)
    return found


def test_each_attempt_gets_its_own_and_one_of_each_step() -> None:
    found = made((12.0, 2), (11.0, 1), (12.1, 2), (21.0, 2), (5.0, 9), saved=(11.5, 20.5))
    assert found.split([10.0, 20.0]) == [
        [StepReading(11.0, 1), StepReading(12.0, 2, has_saved=True)],
        [StepReading(21.0, 2, has_saved=True)],
    ]
    assert found.last_saved(20.0) == 20.5 and found.last_saved(20.5) is None
    assert made().split([1.0]) == [[]] and made((1.0, 1)).split([]) == []


def test_a_counter_that_begins_anew_in_an_epoch_is_followed() -> None:
    found = made((1.0, 1), (2.0, 2), (3.0, 1), (4.0, 2))
    assert [item.step for item in found.split([0.0], is_counted=False)[0]] == [1, 2, 1, 2]
    assert [item.step for item in found.split([0.0])[0]] == [1, 2]


def test_of_many_steps_the_older_ones_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_readings, "_MOST", 8)
    found = made(*((float(n), n) for n in range(100)), saved=tuple(float(n) for n in range(100)))
    found.add_step(100.0, 1 << 60)
    (steps,) = found.split([0.0])
    assert len(steps) <= 8 and steps[0].step == 0 and steps[-1].step == 99
    assert found.last_saved(0.0) == 99.0
