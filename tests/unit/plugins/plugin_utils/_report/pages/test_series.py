# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Series made short, samples made into cells."""

from __future__ import annotations

import statistics
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.data.attempts import RunClock
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import StepRecord, Usage
from ansible_collections.muster.training.plugins.plugin_utils._report.pages import series

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(FINITE, FINITE), max_size=200), st.integers(1, 50))
def test_a_reduced_series_is_short_and_keeps_its_extremes(points: list[tuple[float, float]], most: int) -> None:
    points = sorted(points)
    made = series.downsample(points, most)
    assert len(made.line) <= max(most, 0) or made.line == tuple(points)
    if made.band:
        assert min(low for _x, low, _high in made.band) == min(y for _x, y in points)
        assert max(high for _x, _low, high in made.band) == max(y for _x, y in points)
        assert [x for x, _y in made.line] == sorted(x for x, _y in made.line)


def test_a_short_series_is_left_alone() -> None:
    assert series.downsample([(1.0, 2.0), (2.0, 3.0)], 5) == series.Curve(((1.0, 2.0), (2.0, 3.0)))


def test_a_spike_of_one_step_stays_in_the_band() -> None:
    points = [(float(n), 100.0 if n == 4711 else 1.0) for n in range(10_000)]
    assert max(high for _x, _low, high in series.downsample(points, 100).band) == 100.0


def test_throughput_comes_from_the_steps_when_none_is_reported() -> None:
    steps = [StepRecord(100.0 + n * 0.5, n, None, None) for n in range(10)]
    assert {round(rate, 6) for _at, rate in series.rates(steps, 100.0, False)} == {2.0}


def test_steps_that_were_read_at_once_make_no_spike() -> None:
    """A program of 50 steps a second, whose output is read ten times a second, some of it twice in one look."""
    steps = [StepRecord(100.0 + n // 5 * 0.1 + (0.001 if n % 10 == 9 else 0.0), n, None, None) for n in range(500)]
    found = [rate for _at, rate in series.rates(steps, 100.0, False)]
    assert len(found) > 10 and min(found) > 45 and max(found) < 60


def test_throughput_without_times_is_nothing() -> None:
    assert series.rates([StepRecord(None, 1, 2.0, 3.0)], 0.0, True) == []
    assert series.rates([StepRecord(5.0, 1, None, None), StepRecord(5.0, 2, None, None)], 0.0, False) == []


def samples(**nodes: list[float | None]) -> list[Usage]:
    return [
        Usage(100.0 + n, node, value, 1.0, None) for node, values in nodes.items() for n, value in enumerate(values)
    ]


CLOCK = RunClock(100.0, None, None, 104.0, True)


def test_the_use_of_nodes_becomes_cells() -> None:
    grid, measured = series.usage_grid(samples(b=[10, 20, 30, 40], a=[90, 90, None, 90]), CLOCK, 4, 8)
    assert (grid.rows, measured) == (("a", "b"), "CPU")
    assert [grid.cells.get((1, column)) for column in range(4)] == [10, 20, 30, 40]
    assert (0, 2) not in grid.cells


def test_a_grid_of_many_nodes_keeps_the_least_used() -> None:
    values: dict[str, list[float | None]] = {f"n{n}": [float(n)] * 4 for n in range(1, 40)}
    grid, _measured = series.usage_grid(samples(**values), CLOCK, 4, 3)
    assert grid.rows == ("n1", "n2", "n3")


def test_gpu_use_wins_over_cpu_use() -> None:
    grid, measured = series.usage_grid([Usage(101.0, "a", 5.0, 1.0, 80.0)], CLOCK, 4, 8)
    assert (measured, list(grid.cells.values())) == ("GPU", [80.0])


def test_sparse_samples_leave_no_false_gaps() -> None:
    sparse = [Usage(100.0 + n, "a", 50.0, None, None) for n in (0, 2)]
    grid, _measured = series.usage_grid(sparse, CLOCK, 4, 8)
    assert sorted(column for _row, column in grid.cells) == [0, 1, 2, 3]


def test_no_samples_no_cells() -> None:
    grid, _measured = series.usage_grid([], RunClock(None, None, None, None, False), 4, 8)
    assert grid.cells == {}


def verdict(*pairs: tuple[t.Any, t.Any, t.Any]) -> dict[str, t.Any]:
    return {"transport": {"pairs": [{"a": a, "b": b, "busbw_gb_s": rate} for a, b, rate in pairs]}}


def test_pairs_become_a_matrix_that_is_read_both_ways() -> None:
    grid = series.pair_grid(verdict(("n2", "n1", 3.0), ("n1", "n10", 5.0), ("n1", "x", None)), 8)
    assert grid.rows == ("n1", "n2", "n10")
    assert grid.cells == {(1, 0): 3.0, (0, 1): 3.0, (0, 2): 5.0, (2, 0): 5.0}


def test_a_pair_measured_both_ways_keeps_both() -> None:
    grid = series.pair_grid(verdict(("a", "b", 3.0), ("b", "a", 4.0)), 8)
    assert grid.cells == {(0, 1): 3.0, (1, 0): 4.0}


def test_a_matrix_of_many_keeps_the_slowest_pairs() -> None:
    pairs = [(f"n{a}", f"n{b}", float(a * b)) for a in range(1, 20) for b in range(a + 1, 20)]
    assert series.pair_grid(verdict(*pairs), 4).rows == ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(("value", "shade"), [(0, 0), (50, 3), (100, 6), (1000, 6), (-5, 0)])
def test_shades(value: float, shade: int) -> None:
    assert series.shade_of(value, 100.0) == shade
    assert series.shade_of(value, 0.0) == 0


def test_neighbouring_cells_of_one_shade_become_one_run() -> None:
    cells = {(0, 0): 100.0, (0, 1): 99.0, (0, 3): 100.0, (1, 0): 100.0, (1, 1): 0.0}
    grid = series.Grid(("a", "b"), ("", "", "", ""), cells)
    assert series.shaded_runs(grid, 100.0) == {6: [(0, 0, 2), (0, 3, 4), (1, 0, 1)], 0: [(1, 1, 2)]}


@given(st.floats(0, 1e9), st.integers(2, 10))
def test_time_ticks_are_few_and_inside(span: float, most: int) -> None:
    ticks = series.time_ticks(span, most)
    assert 1 <= len(ticks) <= most + 1
    assert 0 <= ticks[-1] <= span


def test_a_steep_start_is_left_out_of_a_long_picture_and_said() -> None:
    steep = [(float(n), 11.0 if n < 3 else 2.5 - n / 1000) for n in range(1000)]
    heights, above = series.clip_start([steep])
    assert (max(heights), above) == (2.5 - 10 / 1000, 11.0)


@pytest.mark.parametrize("count", [100, 1000])
def test_an_even_fall_is_shown_whole(count: int) -> None:
    even = [(float(n), 5 - n / count) for n in range(count)]
    assert series.clip_start([even]) == ([y for _x, y in even], None)


def test_the_running_median_is_the_median_of_the_neighbours() -> None:
    points = [(float(x), float((x * 7919) % 101)) for x in range(400)]
    found = series.running_median(points)
    for index in (0, 3, 4, 200, 396, 399):
        around = [y for _x, y in points[max(0, index - 4) : index + 5]]
        assert found[index] == (points[index][0], statistics.median(around))
    assert series.running_median(points[:99]) == []


def test_a_series_is_split_where_it_stood_still() -> None:
    points = [(1.0, 0.0), (2.0, 0.0), (50.0, 0.0), (51.0, 0.0)]
    assert series.split_at(points, [2.0]) == [points[:2], points[2:]]
    assert series.split_at(points, []) == [points] and series.split_at(points, [99.0]) == [points]
