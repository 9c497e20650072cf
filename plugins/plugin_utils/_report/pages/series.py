# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shortens long series so that they can be drawn, and sorts samples into the cells of a grid."""

from __future__ import annotations

import bisect
import dataclasses
import math
import typing as t

from ..data import parsing
from ..data.attempts import RunClock
from ..data.load import StepRecord, Usage

Point = tuple[float, float]
LEVELS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """A series to draw: ``line`` is the series or its mean in each bucket, ``band`` the (x, low, high) of buckets."""

    line: tuple[Point, ...]
    band: tuple[tuple[float, float, float], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """Cells of a picture: ``cells[row, column]`` is a value, missing where nothing is known."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[int, int], float]


def downsample(points: t.Sequence[Point], most: int) -> Curve:
    """Return at most ``most`` points: buckets of equal width in x, each with its mean and its extremes.

    The extremes are kept as a band, so that a spike which lasted one step stays visible.
    """
    if len(points) <= most:
        return Curve(tuple(points))
    low, high = points[0][0], points[-1][0]
    width = (high - low) / most or 1.0
    buckets: dict[int, list[Point]] = {}
    for point in points:
        buckets.setdefault(min(int((point[0] - low) / width), most - 1), []).append(point)
    line, band = [], []
    for _index, members in sorted(buckets.items()):
        middle = math.fsum(x for x, _y in members) / len(members)
        heights = [y for _x, y in members]
        line.append((middle, math.fsum(heights) / len(heights)))
        band.append((middle, min(heights), max(heights)))
    return Curve(tuple(line), tuple(band))


# Nodes look for new output ten times a second.
_LEAST_APART_S = 0.5
# A series of fewer points is short: there is nothing to smooth.
_LONG = 100


def is_smoothed(parts: t.Iterable[t.Sequence[object]]) -> bool:
    """Return whether the picture of a series shows its running median."""
    return any(len(part) >= _LONG for part in parts)


def running_median(points: t.Sequence[Point]) -> list[Point]:
    """Return the median of each point and its neighbours, a fiftieth of the series wide; nothing for a short series."""
    half = len(points) // _LONG
    if half < 1:
        return []
    heights = [y for _x, y in points]
    window = sorted(heights[: half + 1])
    found = []
    for index, (x, _y) in enumerate(points):
        middle = len(window) // 2
        found.append((x, window[middle] if len(window) % 2 else (window[middle - 1] + window[middle]) / 2))
        if index + half + 1 < len(points):
            bisect.insort(window, heights[index + half + 1])
        if index - half >= 0:
            window.remove(heights[index - half])
    return found


def split_at(points: t.Sequence[Point], places: t.Sequence[float]) -> list[list[Point]]:
    """Return the series in stretches that end at ``places`` (values of x)."""
    found: list[list[Point]] = [[]]
    left = sorted(places)
    for point in points:
        while left and point[0] > left[0]:
            left.pop(0)
            if found[-1]:
                found.append([])
        found[-1].append(point)
    return found


def extras(steps: t.Iterable[StepRecord], name: str) -> list[Point]:
    """Return (step, value) of another figure of the program."""
    return [(float(step.step), step.extras[name]) for step in steps if name in step.extras]


def losses(steps: t.Iterable[StepRecord]) -> list[Point]:
    """Return (step, loss) where the loss is known."""
    return [(float(step.step), step.loss) for step in steps if step.loss is not None]


def clip_start(parts: t.Sequence[t.Sequence[Point]]) -> tuple[list[float], float | None]:
    """Return the heights to show, and the highest when the picture leaves it out.

    A loss that starts far above the rest would flatten everything after it: when the first hundredth of a long series
    takes more than 60 % of the height, the picture begins below it, and its caption must say so.
    """
    points = [point for part in parts for point in part]
    heights = [y for _x, y in points]
    if len(points) < 300:
        return heights, None
    low, high = min(x for x, _y in points), max(x for x, _y in points)
    later = [y for x, y in points if x > low + (high - low) / 100]
    if not later or (max(later) - min(later)) > 0.4 * (max(heights) - min(heights)):
        return heights, None
    return later, max(heights)


def rates(steps: t.Sequence[StepRecord], zero: float, reported: bool) -> list[Point]:
    """Return (elapsed seconds, throughput); from the steps' own times when the program reports none."""
    if reported:
        return [(s.at - zero, s.throughput) for s in steps if s.at is not None and s.throughput is not None]
    timed = [(step.at - zero, step.step) for step in steps if step.at is not None]
    sparse = _thin_out(timed)
    points = []
    for (left, before), (right, after) in zip(sparse, sparse[1:], strict=False):
        if right > left:
            points.append(((left + right) / 2, (after - before) / (right - left)))
    return points


def _thin_out(timed: t.Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return readings so far apart that their times tell: several that were read at once have one time."""
    if not timed:
        return []
    apart = max((timed[-1][0] - timed[0][0]) / 200, _LEAST_APART_S)
    kept = [timed[0]]
    for index, (at, step) in enumerate(timed[1:], 1):
        is_last_of_moment = index + 1 == len(timed) or timed[index + 1][0] > at
        if is_last_of_moment and at - kept[-1][0] >= apart:
            kept.append((at, step))
    return kept


def usage_grid(samples: t.Sequence[Usage], clock: RunClock, columns: int, most: int) -> tuple[Grid, str]:
    """Return mean utilisation (percent) by node and slice of time, and what was measured (``GPU`` or ``CPU``).

    With more than ``most`` nodes, the least used are kept: they are the ones to look at.
    """
    gpu = any(sample.gpu_percent is not None for sample in samples)
    measured = [(sample.node, sample.at, sample.gpu_percent if gpu else sample.cpu_percent) for sample in samples]
    valued = [(node, at, value) for node, at, value in measured if value is not None]
    names = _choose_nodes([(node, value) for node, _at, value in valued], most)
    times = [at for _node, at, _value in valued]
    low = clock.zero if clock.zero is not None else min(times, default=0.0)
    high = max([clock.end or low, *times]) if times else low
    width = (high - low) / columns or 1.0
    rows = {name: row for row, name in enumerate(names)}
    placed = [
        ((rows[node], min(int((at - low) / width), columns - 1)), value)
        for node, at, value in valued
        if node in rows and at >= low
    ]
    cells = _fill_gaps(_mean_cells(placed), len(names), columns)
    return Grid(tuple(names), tuple(str(low + i * width) for i in range(columns)), cells), "GPU" if gpu else "CPU"


def _choose_nodes(values: t.Iterable[tuple[str, float]], most: int) -> list[str]:
    """Return the names of at most ``most`` nodes, those with the lowest mean, in their natural order."""
    by_node: dict[str, list[float]] = {}
    for node, value in values:
        by_node.setdefault(node, []).append(value)
    least = sorted(by_node, key=lambda name: (_mean(by_node[name]), name))[:most]
    return sorted(least, key=parsing.natural_key)


def _mean_cells(placed: t.Iterable[tuple[tuple[int, int], float]]) -> dict[tuple[int, int], float]:
    """Return the mean of the percentages in each cell."""
    cells: dict[tuple[int, int], list[float]] = {}
    for cell, value in placed:
        cells.setdefault(cell, []).append(min(max(value, 0.0), 100.0))
    return {cell: _mean(values) for cell, values in cells.items()}


def _mean(values: t.Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _fill_gaps(cells: dict[tuple[int, int], float], rows: int, columns: int) -> dict[tuple[int, int], float]:
    """Carry a sample over the usual distance to the next one, so that sparse sampling draws no false gaps."""
    result = dict(cells)
    for row in range(rows):
        own = sorted(column for line, column in cells if line == row)
        gaps = sorted(right - left for left, right in zip(own, own[1:], strict=False))
        usual = gaps[(len(gaps) - 1) // 2] if gaps else 1
        for column in own:
            for ahead in range(column + 1, min(column + usual, columns)):
                result.setdefault((row, ahead), cells[row, column])
    return result


def pair_grid(verdict: dict[str, object], most: int) -> Grid:
    """Return the bandwidth of each measured pair (GB/s), both ways round.

    With more than ``most`` nodes, those of the slowest pairs are kept.
    """
    bandwidths = {}
    for row in parsing.read_rows(parsing.read_mapping(verdict.get("transport")).get("pairs")):
        first, second = (parsing.read_text(row.get(key), 40) for key in ("a", "b"))
        rate = parsing.read_number(row.get("busbw_gb_s"))
        if first and second and rate is not None and rate >= 0:
            bandwidths[first, second] = rate
    names: dict[str, None] = {}
    for pair in sorted(bandwidths, key=lambda pair: bandwidths[pair]):
        for name in pair:
            if len(names) < most:
                names.setdefault(name)
    ordered = sorted(names, key=parsing.natural_key)
    index_of = {name: index for index, name in enumerate(ordered)}
    cells: dict[tuple[int, int], float] = {}
    for (first, second), rate in bandwidths.items():
        if first in index_of and second in index_of:
            cells[index_of[first], index_of[second]] = rate
            cells.setdefault((index_of[second], index_of[first]), rate)
    return Grid(tuple(ordered), tuple(ordered), cells)


def shade_of(value: float, full: float) -> int:
    """Return 0 (nothing) to ``LEVELS`` (full) for a cell's shade."""
    return max(0, min(LEVELS, round(LEVELS * value / full))) if full > 0 else 0


def shaded_runs(grid: Grid, full: float) -> dict[int, list[tuple[int, int, int]]]:
    """Return (row, left, right) of neighbouring cells of one shade, by shade."""
    runs: dict[int, list[tuple[int, int, int]]] = {}
    open_run: tuple[int, int, int, int] | None = None
    for row, column in sorted(grid.cells):
        shade = shade_of(grid.cells[row, column], full)
        if open_run and open_run[:2] == (shade, row) and open_run[3] == column:
            runs[shade][-1] = (row, open_run[2], column + 1)
            open_run = (shade, row, open_run[2], column + 1)
        else:
            runs.setdefault(shade, []).append((row, column, column + 1))
            open_run = (shade, row, column, column + 1)
    return runs


def time_ticks(span: float, most: int) -> list[float]:
    """Return ticks for an axis of ``span`` seconds: round numbers of seconds, minutes, hours or days."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    step: float = next((size for size in steps if span / size <= most), 0)
    if not step:
        step = 86400.0 * math.ceil(span / 86400 / most)
    return [index * step for index in range(int(span / step) + 1)]
