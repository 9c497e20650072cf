# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a run stood still: gaps far above its usual step, and the time that made steps which count."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import StepRecord
from ansible_collections.muster.training.plugins.plugin_utils._report.data.stalls import find_stalls


def steps(*times: float | None) -> tuple[StepRecord, ...]:
    return tuple(StepRecord(at, number, None, None) for number, at in enumerate(times))


def attempt(end: float | None, *times: float | None) -> t.Any:
    return types.SimpleNamespace(end=end, segment=types.SimpleNamespace(steps=steps(*times)))


def test_a_gap_is_a_stall_only_beside_the_usual_step() -> None:
    assert find_stalls([attempt(104.0, 1, 2, 3, 4, 104)]) == ((4, 104),)
    assert find_stalls([attempt(12.0, 1, 2, 3, 12)]) == (), "a slow checkpoint"
    assert find_stalls([attempt(None, 0, 60, 120, 180, 300)]) == (), "its steps take a minute each"
    assert find_stalls([attempt(90.0, 1, 2, 3)]) == ((3, 90.0),), "it hung until it was ended"
    assert find_stalls([attempt(90.0, 1)]) == () and find_stalls([types.SimpleNamespace(end=9.0, segment=None)]) == ()


def test_steps_whose_times_are_not_known_lie_in_no_stall() -> None:
    """Those that were read after the fact were made in the gap that they lie in."""
    times: tuple[t.Any, ...] = (1, 2, 3, 4, None, None, 104, 105)
    assert find_stalls([attempt(106.0, *times)]) == ()
    assert find_stalls([attempt(206.0, *times)]) == ((105, 206.0),)
