# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the pictures of one run: loss, throughput, use of the nodes, bandwidth of the pairs.

Each function returns the picture twice (wide, narrow) or None when there is nothing to draw.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from markupsafe import Markup

from ..data import format as fmt
from ..data.run_model import RunModel
from . import plots, series
from .plots import Size
from .series import Grid, Point

if t.TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Picture = tuple[Markup, Markup]
WIDE, NARROW = 840, 340
MAX_ROWS = 8
MAX_USAGE = 32
# Fewer rows or pairs are numbers, not a picture.
FEWEST_SHADES = 3


def draw_both(salt: str, title: str, heights: tuple[int, int], paint: plots.Painter) -> Picture:
    """Return a picture in both sizes; ``heights`` in pixels, wide then narrow."""
    wide, narrow = Size("wide", WIDE, heights[0]), Size("narrow", NARROW, heights[1])
    return plots.draw_svg(wide, salt, title, paint), plots.draw_svg(narrow, salt, title, paint)


def _most_points(size: Size) -> int:
    return 600 if size.name == "wide" else 260


def draw_curve(
    ax: Axes, points: t.Sequence[Point], size: Size, colour: str, width: float = 1.5, style: str = "-"
) -> None:
    """Draw a series: of a long one its running median, with the series behind it, faint.

    A series with more points than the picture has room for becomes its mean, within the band of its extremes.
    """
    median = series.running_median(points)
    if median:
        smooth = series.downsample(median, _most_points(size))
        ax.plot(*zip(*smooth.line, strict=True), color=colour, linewidth=width, linestyle=style, zorder=3)
    made = series.downsample(points, _most_points(size))
    if made.band:
        xs, low, high = zip(*made.band, strict=True)
        ax.fill_between(xs, low, high, color=colour, alpha=0.22, linewidth=0)
    if len(made.line) == 1:
        ax.plot(*made.line[0], color=colour, marker="o", markersize=3, linestyle="none")
    elif made.line and not (median and made.band):
        faint: dict[str, t.Any] = {"alpha": 0.3, "linewidth": 0.8} if median else {"linewidth": width}
        ax.plot(*zip(*made.line, strict=True), color=colour, linestyle=style, solid_capstyle="round", **faint)


def set_y_axis(ax: Axes, heights: t.Sequence[float], floor: float | None, size: Size) -> None:
    """Set a y axis of few round numbers; logarithmic where the values span more than two decades."""
    low, high = min(heights), max(heights)
    if floor is None and low > 0 and high / low > 100:
        ax.set_yscale("log")
        plots.hide_minor_ticks(ax.yaxis)
    else:
        bottom = floor if floor is not None and low >= floor else low
        room = (high - bottom) or abs(high) or 1.0
        ax.set_ylim(bottom - (0.06 * room if floor is None else 0), high + 0.1 * room)
        plots.set_round_ticks(ax.yaxis, 5 if size.name == "wide" else 4)
    ticks = ax.get_yticks()
    step = min((abs(b - a) for a, b in itertools.pairwise(ticks)), default=1.0)
    ax.yaxis.set_major_formatter(lambda value, _place: fmt.format_tick(value, step))
    ax.grid(axis="y")


def set_step_axis(ax: Axes, size: Size) -> None:
    """Set an x axis of training steps."""
    plots.set_round_ticks(ax.xaxis, 8 if size.name == "wide" else 4, whole=True)
    ax.xaxis.set_major_formatter(lambda value, _place: fmt.format_tick(value))


def set_time_axis(ax: Axes, span: float, size: Size) -> None:
    """Set an x axis of elapsed time, 0 to ``span`` seconds."""
    ax.set_xlim(0, span or 1.0)
    ax.set_xticks(series.time_ticks(span or 1.0, 8 if size.name == "wide" else 4))
    ax.xaxis.set_major_formatter(lambda value, _place: fmt.format_clock(value))


def name_axes(ax: Axes, size: Size, left: str, below: str) -> None:
    """Write what the axes measure: y above its numbers, x at its right end."""
    high = 1 - 13 / size.height
    ax.figure.text(0, high, left, fontsize=plots.FONT_SIZE, color=plots.INK, va="bottom")
    ax.annotate(below, (1, 0), (0, -30), "axes fraction", "offset points", ha="right", va="center", color=plots.MUTED)


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """The run's clock made safe for drawing: ``zero`` and ``span`` are known."""

    zero: float
    span: float


def read_times(model: RunModel) -> Times | None:
    """Return the run's clock, or None when it lacks its start or its end."""
    zero, elapsed = model.clock.zero, model.clock.duration
    return Times(zero, elapsed) if zero is not None and elapsed else None


def draw_loss(model: RunModel) -> tuple[Picture, float | None] | None:
    """Return the loss by step: what counts in the accent, what was lost in grey, faults and resumes marked.

    With it comes the highest loss when it lies above the picture.
    """
    counted, lost = ([series.losses(part) for part in parts] for parts in (model.counted, model.lost))
    if not any((*counted, *lost)):
        return None
    heights, above = series.clip_start([*counted, *lost])

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (48, 34, 14, 44))
        for part in lost:
            draw_curve(ax, part, size, plots.MUTED, 1.2)
        for part in counted:
            draw_curve(ax, part, size, plots.ACCENT, 1.7)
        set_y_axis(ax, heights, None, size)
        _mark_nan(ax, model)
        set_step_axis(ax, size)
        _mark_steps(ax, model)
        name_axes(ax, size, "loss", "step")

    return draw_both("loss", "Training loss by step, with faults, resumes and checkpoints", (290, 250), paint), above


def _mark_nan(ax: Axes, model: RunModel) -> None:
    """Fill the steps whose loss is not a number: without a mark the curve looks as if it had ended well."""
    if model.nan_since is None or model.last_step is None:
        return
    ax.axvspan(model.nan_since, max(model.last_step, model.nan_since + 1), color=plots.BAD, alpha=0.18, linewidth=0)
    ax.text(model.nan_since, 0.94, " NaN", transform=ax.get_xaxis_transform(), color=plots.BAD, va="top", fontsize=11)


def _mark_steps(ax: Axes, model: RunModel) -> None:
    across = ax.get_xaxis_transform()
    saved = [item.step for part in model.run.segments for item in part.checkpoints]
    if saved:
        thin = sorted(set(saved))[:: max(len(set(saved)) // 120, 1)]
        ax.plot(thin, [0.0] * len(thin), "|", color=plots.ACCENT, transform=across, markersize=9, clip_on=False)
    struck: dict[int, list[int]] = {}
    for fault in model.faults:
        if fault.step is not None:
            struck.setdefault(fault.step, []).append(fault.number)
        if fault.step is not None and fault.resumed_from is not None:
            ax.axvspan(fault.resumed_from, fault.step, color=plots.HEAT[1], alpha=0.6, linewidth=0, zorder=0)
            ax.plot(
                [fault.resumed_from],
                [0.0],
                "o",
                transform=across,
                markersize=8,
                clip_on=False,
                zorder=4,
                markerfacecolor=plots.PAPER,
                markeredgecolor=plots.ACCENT,
                markeredgewidth=2,
            )
    for step, numbers in struck.items():
        ax.axvline(step, color=plots.BAD, linewidth=1, linestyle=(0, (2, 2)))
        ends = f"{numbers[0]}\N{EN DASH}{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
        mark = f"× {ends}" if len(struck) <= 12 else "×"
        ax.text(step, 1.02, mark, transform=across, color=plots.BAD, ha="center", va="bottom", fontsize=11)


def draw_throughput(model: RunModel) -> Picture | None:
    """Return the throughput over elapsed time; the time in which no step was made is hatched."""
    times = read_times(model)
    if times is None:
        return None
    reported = model.throughput is not None
    parts = [series.rates(part.steps, times.zero, reported) for part in model.run.segments]
    heights = [y for part in parts for _x, y in part]
    if not heights:
        return None

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (48, 34, 14, 44))
        still = [left for left, _right in _downtimes(model, times)]
        for part in parts:
            for stretch in series.split_at(part, still):
                draw_curve(ax, stretch, size, plots.ACCENT, 1.3)
        set_y_axis(ax, heights, 0.0, size)
        set_time_axis(ax, times.span, size)
        for left, right in _downtimes(model, times):
            ax.axvspan(left, right, facecolor="none", edgecolor=plots.RULE, hatch="///", linewidth=0)
        name_axes(ax, size, model.unit, "elapsed")

    return draw_both("throughput", f"Throughput in {model.unit} over elapsed time", (210, 200), paint)


def _downtimes(model: RunModel, times: Times) -> list[Point]:
    found = []
    for fault in model.faults:
        old, new = fault.attempt.segment, fault.after.segment
        left = old.steps[-1].at if old and old.steps else None
        right = new.steps[0].at if new and new.steps else None
        if left is not None and right is not None:
            found.append((left - times.zero, right - times.zero))
    found += [(left - times.zero, right - times.zero) for left, right in model.stalls]
    return found


def draw_extra(model: RunModel, name: str) -> Picture | None:
    """Return another figure that the program reported, by step."""
    parts = [series.extras(part, name) for part in model.counted]
    heights = [y for part in parts for _x, y in part]
    if not heights:
        return None

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (48, 34, 14, 44))
        for part in parts:
            draw_curve(ax, part, size, plots.ACCENT, 1.5)
        set_y_axis(ax, heights, None, size)
        set_step_axis(ax, size)
        name_axes(ax, size, name, "step")

    return draw_both(f"extra-{name}", f"{name} by step", (170, 170), paint)


def draw_usage(model: RunModel) -> tuple[Picture, str] | None:
    """Return the use of each node over time, and what it shows (``GPU`` or ``CPU``): shades from three nodes on."""
    grid, measured = series.usage_grid(model.run.usage, model.clock, 60, MAX_USAGE)
    times = read_times(model)
    if not grid.cells or times is None:
        return None
    if len(grid.rows) < FEWEST_SHADES:
        use = _use_by_node(model, times)
        return draw_nodes("usage", f"{measured} use of each node over elapsed time", "%", use, times, 100.0), measured

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (label_width(grid.rows, size), 8, 14, 36))
        fill_shades(ax, grid, 100.0, 0.12)
        set_row_axis(ax, grid.rows, size)
        ticks = series.time_ticks(times.span, 8 if size.name == "wide" else 4)
        ax.set_xticks(
            [tick / times.span * len(grid.columns) for tick in ticks], [fmt.format_clock(tick) for tick in ticks]
        )
        ax.set_xlim(0, len(grid.columns))

    high = 44 + 26 * len(grid.rows) if len(grid.rows) <= 8 else 44 + 15 * len(grid.rows)
    return draw_both("usage", f"{measured} use of each node over elapsed time", (high, high), paint), measured


def _use_by_node(model: RunModel, times: Times) -> dict[str, list[Point]]:
    has_gpu = any(sample.gpu_percent is not None for sample in model.run.usage)
    found: dict[str, list[Point]] = {}
    for sample in model.run.usage:
        value = sample.gpu_percent if has_gpu else sample.cpu_percent
        if value is not None and sample.at >= times.zero:
            found.setdefault(sample.node, []).append((sample.at - times.zero, value))
    return found


def draw_memory(model: RunModel) -> Picture | None:
    """Return the memory in use on each node over time; of many nodes, of those that use the most."""
    times = read_times(model)
    found: dict[str, list[Point]] = {}
    for sample in model.run.usage if times else ():
        if times and sample.memory_gib is not None and sample.at >= times.zero:
            found.setdefault(sample.node, []).append((sample.at - times.zero, sample.memory_gib))
    if times is None or not found:
        return None
    most = sorted(found, key=lambda node: -max(value for _at, value in found[node]))[: len(plots.SERIES)]
    shown = {node: found[node] for node in found if node in most}
    return draw_nodes("memory", "Memory in use on each node over elapsed time", "GiB", shown, times)


def draw_nodes(
    salt: str, title: str, unit: str, lines: t.Mapping[str, t.Sequence[Point]], times: Times, top: float | None = None
) -> Picture:
    """Return one line for each node over elapsed time; ``top`` is the end of the axis, where it is known."""
    heights = [y for points in lines.values() for _x, y in points] + ([top] if top is not None else [])

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (48, 34, 14, 44))
        for index, (_node, points) in enumerate(sorted(lines.items())):
            made = series.downsample(points, _most_points(size))
            colour = plots.SERIES[index % len(plots.SERIES)]
            ax.plot(*zip(*made.line, strict=True), color=colour, linewidth=1.3)
        set_y_axis(ax, heights, 0.0, size)
        set_time_axis(ax, times.span, size)
        name_axes(ax, size, unit, "elapsed")

    return draw_both(salt, title, (170, 170), paint)


def label_width(names: t.Sequence[str], size: Size) -> int:
    """Return the pixels that the names of rows need."""
    most = 180 if size.name == "wide" else 96
    return min(most, 16 + round(7.2 * max((len(name) for name in names), default=0)))


def _clip_name(name: str, size: Size) -> str:
    most = 23 if size.name == "wide" else 11
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def set_row_axis(ax: Axes, names: t.Sequence[str], size: Size) -> None:
    """Name the rows of a picture, the first on top, with names cut to the room there is."""
    ax.set_ylim(len(names), 0)
    ax.set_yticks([index + 0.5 for index in range(len(names))], [_clip_name(name, size) for name in names])
    ax.spines["bottom"].set_visible(False)
    if len(names) > MAX_ROWS:
        ax.tick_params(axis="y", labelsize=10)


def fill_shades(ax: Axes, grid: Grid, full: float, gap: float) -> None:
    """Fill the cells of a grid by their share of ``full``; ``gap`` is what stays free between rows (0 to 1)."""
    for shade, found in sorted(series.shaded_runs(grid, full).items()):
        stretches = ((left, row + gap / 2, right, row + 1 - gap / 2) for row, left, right in found)
        plots.fill_boxes(ax, stretches, plots.HEAT[shade])


def draw_pairs(verdict: dict[str, object], salt: str) -> Picture | None:
    """Return the bandwidth of every measured pair of nodes as a square of shades, with its figures where they fit."""
    grid = series.pair_grid(verdict, 32)
    if len(grid.rows) < FEWEST_SHADES:
        return None
    full = max(grid.cells.values())
    slow = min(grid.cells, key=lambda key: (grid.cells[key], key))

    def paint(figure: Figure, size: Size) -> None:
        cell = _cell_size(grid, size)
        left, top = label_width(grid.rows, size), 24
        ax = plots.add_axes(figure, size, (left, top, size.width - left - cell * len(grid.rows), 6))
        fill_shades(ax, grid, full, 0.0)
        set_row_axis(ax, grid.rows, size)
        ax.set_xlim(0, len(grid.columns))
        ax.xaxis.tick_top()
        step = 1 if cell >= 22 else 4
        places = range(0, len(grid.columns), step)
        ax.set_xticks([index + 0.5 for index in places], [str(index + 1) for index in places])
        ax.tick_params(axis="x", length=0)
        _write_cells(ax, grid, full, cell)
        plots.draw_frame(ax, slow[1], slow[0], plots.BAD)

    wide, narrow = Size("wide", WIDE, 0), Size("narrow", NARROW, 0)
    heights = tuple(round(30 + _cell_size(grid, size) * len(grid.rows)) for size in (wide, narrow))
    return draw_both(f"pairs-{salt}", "Bandwidth of each pair of nodes", (heights[0], heights[1]), paint)


def _cell_size(grid: Grid, size: Size) -> float:
    room = (560 if size.name == "wide" else size.width - 8) - label_width(grid.rows, size)
    return min(room / len(grid.rows), 50 if size.name == "wide" else 44)


def _write_cells(ax: Axes, grid: Grid, full: float, cell: float) -> None:
    if cell < 34:
        return
    for (row, column), value in grid.cells.items():
        colour = plots.PAPER if series.shade_of(value, full) >= 5 else plots.INK
        place = (column + 0.5, row + 0.5)
        ax.text(*place, fmt.format_figure(value), color=colour, ha="center", va="center_baseline", fontsize=11)
