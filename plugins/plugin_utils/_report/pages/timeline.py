# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the timeline of a run: the job's phases, its nodes and its faults."""

from __future__ import annotations

import dataclasses
import typing as t

from ..data import parsing
from ..data.attempts import AttemptView, all_checkpoints
from ..data.load import RunEvent
from ..data.run_model import RunModel
from . import plots
from .figures import MAX_ROWS, Picture, draw_both, label_width, read_times, set_row_axis, set_time_axis
from .plots import Size

if t.TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXITS = ("worker_exit", "agent_exit", "agent_restart")
# How a launcher stops the other ranks after one failed: 128 + SIGTERM.
STOPPED = 143
MARKS = {
    "worker_exit": "x",
    "agent_exit": "X",
    "agent_restart": "X",
    "node_lost": "X",
    "drill": "v",
    "notice": "^",
    "node_back": "o",
    "cancelled": "s",
}
# Marks of what was done, or was told before it came.
_EXPECTED = ("drill", "cancelled", "notice")


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the job in seconds since its start: ``kind`` is wait, start, train, stall or down."""

    start: float
    end: float
    kind: t.Literal["wait", "start", "train", "stall", "down"]
    label: str = ""


def build_phases(model: RunModel) -> list[Phase]:
    """Return the job's phases: waiting, starting, training of each attempt, and standing still after a fault."""
    zero, end = model.clock.zero, model.clock.end
    if zero is None or end is None:
        return []
    phases: list[Phase] = []
    free = 0.0
    for attempt in model.attempts:
        start = max((attempt.start or zero) - zero, free)
        finish = max((attempt.end or end) - zero, start)
        if start > free:
            phases.append(Phase(free, start, "down" if phases else "wait"))
        first = _training_start(attempt, zero, start, finish)
        phases.append(Phase(start, first, "start"))
        phases += _split_training(first, finish, attempt.label, [(a - zero, b - zero) for a, b in model.stalls])
        free = finish
    return [phase for phase in phases if phase.end > phase.start]


def _split_training(start: float, end: float, label: str, stalls: t.Sequence[tuple[float, float]]) -> t.Iterator[Phase]:
    """Yield the training of an attempt, without the stretches in which no step was made, and these."""
    here = start
    for left, right in stalls:
        if start <= left < end:
            yield Phase(here, left, "train", label)
            yield Phase(left, min(right, end), "stall")
            here, label = min(right, end), ""
    yield Phase(here, end, "train", label)


def _training_start(attempt: AttemptView, zero: float, start: float, finish: float) -> float:
    steps = attempt.segment.steps if attempt.segment else ()
    at = steps[0].at if steps else None
    if at is None:
        return start if steps or attempt.last_step is not None else finish
    return min(max(at - zero, start), finish)


def marked_events(model: RunModel) -> list[RunEvent]:
    """Return the events to mark: not the exits that were clean, followed from another rank's, or came of a cancel."""
    events = []
    cancelled = False
    for event in model.run.events:
        cancelled = cancelled or event.kind == "cancelled"
        is_expected = event.exit_code in (0, STOPPED) or (cancelled and event.kind in EXITS)
        if event.kind in MARKS and not is_expected:
            events.append(event)
    return events


def node_rows(model: RunModel) -> list[str]:
    """Return the nodes to show: all when few, else first those on which something happened."""
    eventful = [event.node for event in marked_events(model) if event.node]
    present = [stay.name for attempt in model.attempts for stay in attempt.nodes]
    names = list(dict.fromkeys([*eventful, *sorted(set(present), key=parsing.natural_key)]))
    return sorted(names[:MAX_ROWS], key=parsing.natural_key)


def draw_timeline(model: RunModel) -> Picture | None:
    """Return the timeline, or None when the times of the run are not known."""
    times, phases = read_times(model), build_phases(model)
    if times is None or not phases:
        return None
    names = ["job", *node_rows(model)]

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (label_width(names, size), 6, 14, 30))
        ax.margins(0)
        for phase in phases:
            _draw_phase(ax, phase, times.span, size)
        for attempt in model.attempts:
            _draw_stays(ax, attempt, names, times.zero)
        _draw_marks(ax, model, names, times.zero)
        set_time_axis(ax, times.span, size)
        set_row_axis(ax, names, size)
        ax.spines["bottom"].set_visible(True)
        ax.grid(axis="x")

    height = 46 + 28 * len(names)
    return draw_both("timeline", "Timeline of the job, its nodes and its faults", (height, height), paint)


def _draw_phase(ax: Axes, phase: Phase, span: float, size: Size) -> None:
    styles: dict[str, dict[str, t.Any]] = {
        "wait": {"facecolor": plots.HEAT[1]},
        "start": {"facecolor": plots.HEAT[3]},
        "train": {"facecolor": plots.ACCENT},
        "stall": {"facecolor": plots.HEAT[0], "edgecolor": plots.RULE, "hatch": "////"},
        "down": {"facecolor": "none", "edgecolor": plots.RULE, "hatch": "///"},
    }
    ax.broken_barh([(phase.start, phase.end - phase.start)], (0.16, 0.68), linewidth=0, **styles[phase.kind])
    pixels = (phase.end - phase.start) / span * size.width * 0.85
    if phase.label and pixels > 12 + 7 * len(phase.label):
        middle = (phase.start + phase.end) / 2
        label = f"attempt {phase.label}" if pixels > 90 else phase.label
        ax.text(middle, 0.5, label, color=plots.PAPER, ha="center", va="center_baseline", fontsize=11)


def _draw_stays(ax: Axes, attempt: AttemptView, names: list[str], zero: float) -> None:
    for stay in attempt.nodes:
        if stay.name in names[1:] and stay.start is not None and stay.end is not None:
            row = names.index(stay.name, 1)
            length = max(stay.end - stay.start, 0.0)
            ax.broken_barh([(stay.start - zero, length)], (row + 0.42, 0.16), facecolor=plots.HEAT[4], linewidth=0)


def _draw_marks(ax: Axes, model: RunModel, names: list[str], zero: float) -> None:
    for event in marked_events(model):
        if event.node is None or event.node in names[1:]:
            row = names.index(event.node, 1) if event.node else 0
            colour = plots.WARN if event.kind in _EXPECTED else plots.BAD
            colour = plots.ACCENT if event.kind == "node_back" else colour
            ax.plot(
                [event.at - zero], [row + 0.5], MARKS[event.kind], color=colour, markersize=8, clip_on=False, zorder=5
            )
    saved = [checkpoint.at - zero for checkpoint in all_checkpoints(model.run.segments) if checkpoint.at is not None]
    thin = saved[:: max(len(saved) // 120, 1)]
    ax.plot(thin, [0.93] * len(thin), "|", color=plots.ACCENT, markersize=5)
