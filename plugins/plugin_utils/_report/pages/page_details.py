# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the tables and plots of a run's page: checks, timeline, curves, attempts, nodes and fabric."""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from markupsafe import Markup

from ..data import format as fmt
from ..data import parsing
from ..data.attempts import AttemptView
from ..data.faults import Fault
from ..data.load import Log, SitePhase, Usage
from ..data.run_model import RunModel
from ..rules.advice import pick_log
from ..rules.checks import ReportCheck, build_checks
from . import figures, series
from .plots import SERIES
from .rendering import MOST_ROWS, Cell, Plot, Table, build_key, build_legend, build_mark
from .timeline import EXITS, build_phases, draw_timeline, marked_events

_TONES = {"passed": "ok", "failed": "bad", "unproven": "warn", "skipped": "calm"}
_FABRIC_TONES = {"pass": "ok", "warn": "warn", "fail": "bad"}
_BLOCK = "\N{LOWER SEVEN EIGHTHS BLOCK}"
_MEDIAN = ", running median with each step behind it"
_NOT_KNOWN = "not known"
_MOST_HANGS = 10
MOST_CHECKS = 16
MOST_EXTRAS = 8


def build_check_tables(model: RunModel) -> list[Table]:
    """Return every check with its result; of very many, those that passed come in a folded table."""
    checks = build_checks(model)
    shown = [check for check in checks if len(checks) <= MOST_CHECKS or check.status != "passed"]
    rest = [check for check in checks if check not in shown]
    tables = [_check_table(shown, "What was checked of this run, and the evidence")]
    if rest:
        tables.append(_check_table(rest, "Checks that passed", f"{fmt.plural(len(rest), 'more check')} passed"))
    return tables


def _check_table(checks: t.Sequence[ReportCheck], caption: str, fold: str | None = None) -> Table:
    lines: list[list[Cell]] = []
    for check in checks[:200]:
        word = {"skipped": "not checked"}.get(check.status, check.status)
        # A short title stays on one line beside a long piece of evidence.
        is_short = len(check.title) < 24
        title = Markup('<span class="key">{0}</span>').format(check.title) if is_short else check.title
        lines.append([title, build_mark(_TONES[check.status], word), check.message])
    return Table(("Check", "Result", "Evidence"), lines, caption, fold=fold, is_list=True)


def build_site_table(phases: t.Sequence[SitePhase]) -> Table | None:
    """Return the seconds of the steps of the playbook site, None when it was not used."""
    lines: list[list[Cell]] = [[phase.name, f"{phase.seconds:.1f} s"] for phase in phases]
    return Table(("Step", "Time"), lines, "Steps of the playbook site up to this run") if lines else None


def build_time_line(model: RunModel) -> Plot | None:
    """Return the timeline with its key, None when the times of the run are not known."""
    picture = draw_timeline(model)
    if picture is None:
        return None
    kinds, phases = {event.kind for event in marked_events(model)}, {phase.kind for phase in build_phases(model)}
    legend = build_legend(
        build_key(_BLOCK, "training"),
        build_key(_BLOCK, "starting", "heat-3") if "start" in phases else None,
        build_key(_BLOCK, "waiting", "heat-1") if "wait" in phases else None,
        build_key("\N{BOX DRAWINGS LIGHT DIAGONAL UPPER RIGHT TO LOWER LEFT}", "no step", "muted")
        if "stall" in phases
        else None,
        build_key("|", "checkpoint") if _has_checkpoints(model) else None,
        build_key("×", "process or node lost", "bad") if kinds & {*EXITS, "node_lost"} else None,
        build_key("\N{BLACK DOWN-POINTING TRIANGLE}", "drill", "warn") if "drill" in kinds else None,
        build_key("\N{BLACK UP-POINTING TRIANGLE}", "notice of preemption", "warn") if "notice" in kinds else None,
        build_key("\N{BLACK SQUARE}", "cancelled", "warn") if "cancelled" in kinds else None,
        build_key("\N{BLACK CIRCLE}", "node back") if "node_back" in kinds else None,
    )
    return Plot(*picture, legend)


def _has_checkpoints(model: RunModel) -> bool:
    return any(segment.checkpoints for segment in model.run.segments)


def describe_hidden_nodes(model: RunModel) -> str | None:
    """Return a sentence on the nodes for which the timeline has no room."""
    names = {stay.name for attempt in model.attempts for stay in attempt.nodes}
    hidden = len(names) - figures.MAX_ROWS
    return f"{fmt.plural(hidden, 'more node')} took part without an event of their own." if hidden > 0 else None


def build_curves(model: RunModel) -> list[Plot]:
    """Return the curves of loss and throughput, as far as there are figures for them."""
    plots = []
    loss, rate = figures.draw_loss(model), figures.draw_throughput(model)
    if loss:
        legend = build_legend(
            build_key("\N{EM DASH}", f"loss{_MEDIAN if series.is_smoothed(model.counted) else ''}"),
            build_key(_BLOCK, "steps done again", "heat-2") if any(model.lost) else None,
            build_key("×", "fault", "bad") if model.faults else None,
            build_key("\N{WHITE CIRCLE}", "resumed from here") if model.faults else None,
            build_key("|", "checkpoint") if _has_checkpoints(model) else None,
        )
        picture, highest = loss
        above = f". The first steps, up to {fmt.format_figure(highest)}, are above the picture."
        plots.append(Plot(*picture, legend + above if highest is not None else legend))
    if rate:
        source = (
            "as the program reported it" if model.throughput is not None else "computed from the times of the steps"
        )
        hatched = ", hatched where no step was made" if model.faults or model.stalls else ""
        median = _MEDIAN if series.is_smoothed(model.counted) else ""
        plots.append(Plot(*rate, f"Throughput in {model.unit}, {source}{hatched}{median}."))
    return plots


def describe_no_figures(model: RunModel) -> str:
    """Return why there is no curve."""
    if model.run.record.get("pruned_at"):
        return "The figures of the program were removed by prune."
    return "No figure of the program was read: it wrote none to MUSTER_METRICS_FILE, and printed none that is known."


def build_extra_curves(model: RunModel) -> tuple[list[Plot], str | None]:
    """Return the other figures of the program, and a sentence on those for which there is no room."""
    names = sorted({name for step in model.curve for name in step.extras})
    drawn = [(name, figures.draw_extra(model, name)) for name in names[:MOST_EXTRAS]]
    rest = fmt.join_names(names[MOST_EXTRAS:], 12)
    plots = [Plot(*picture, None) for _name, picture in drawn if picture]
    return plots, f"Not drawn: {rest}." if rest else None


def build_attempt_table(model: RunModel) -> Table | None:
    """Return the attempts with the cost of each fault; of very many, the first and the last ones."""
    lines = [
        _attempt_line(model, attempt, model.faults[index] if index < len(model.faults) else None)
        for index, attempt in enumerate(model.attempts)
    ]
    shown = lines if len(lines) <= 20 else [*lines[:10], *lines[-10:]]
    left_out = f"; {len(lines) - 20} in the middle are left out" if len(lines) > 20 else ""
    headings = ("Attempt", "Ended by", "Node", "Exit code", "Steps", "Lost", "Time lost", "Duration", "Logs")
    return Table(headings, shown, f"Lost: steps that had to be done again{left_out}", "   nnnnn") if lines else None


def build_hang_table(model: RunModel) -> Table | None:
    """Return when ranks waited for one that did not come, and which, or None where none did."""
    zero = model.clock.zero
    lines: list[list[Cell]] = [
        [
            hang.attempt or fmt.UNKNOWN,
            fmt.format_clock(hang.at - zero) if hang.at is not None and zero is not None else fmt.UNKNOWN,
            fmt.format_duration(hang.seconds) if hang.seconds is not None else "to the end of the attempt",
            hang.text or fmt.UNKNOWN,
        ]
        for hang in model.hangs[:_MOST_HANGS]
    ]
    more = f"; {len(model.hangs) - _MOST_HANGS} more are in run.json" if len(model.hangs) > _MOST_HANGS else ""
    return Table(("Attempt", "At", "For", "Who"), lines, f"Ranks that were waited for{more}", " nn") if lines else None


def _attempt_line(model: RunModel, attempt: AttemptView, fault: Fault | None) -> list[Cell]:
    steps = fmt.UNKNOWN
    if attempt.first_step is not None and attempt.last_step is not None:
        steps = f"{fmt.format_count(attempt.first_step)}\N{EN DASH}{fmt.format_count(attempt.last_step)}"
    known = attempt.end is not None and attempt.start is not None
    duration = (attempt.end or 0.0) - (attempt.start or 0.0) if known else None
    rank = f", rank {attempt.rank}" if attempt.rank is not None else ""
    return [
        attempt.label,
        _end_words(model, attempt),
        f"{attempt.node}{rank}" if attempt.node else fmt.UNKNOWN,
        fmt.UNKNOWN if attempt.exit_code is None else str(attempt.exit_code),
        steps,
        fmt.format_count(fault.steps_lost) if fault else fmt.UNKNOWN,
        fmt.format_duration(fault.seconds_lost) if fault else fmt.UNKNOWN,
        fmt.format_duration(duration),
        _log_paths(attempt.logs),
    ]


def _end_words(model: RunModel, attempt: AttemptView) -> str:
    """Return by what an attempt ended; the last one without a cause has the run's outcome, or its cause."""
    outcomes = {"succeeded": "finished", "running": "running", "cancelled": "cancelled"}
    ended = outcomes.get(model.outcome) or parsing.read_text(model.run.record.get("cause"), 40)
    last = ended if attempt is model.attempts[-1] else None
    words = (attempt.cause or last or "not known").replace("_", " ")
    if attempt.notice_at is None:
        return words
    return f"{words}; notice at {fmt.format_time(attempt.notice_at)}: {attempt.notice}"


def _log_paths(paths: t.Sequence[str]) -> str:
    if not paths:
        return fmt.UNKNOWN
    if len(paths) <= 2:
        return Markup("<br>").join(Markup("<code>{0}</code>").format(path) for path in paths)
    folders = {path.rpartition("/")[0] for path in paths}
    place = f" in {folders.pop()}/" if len(folders) == 1 else ""
    names = fmt.join_names(list(paths), 12)
    return Markup('<span title="{0}">{1} files{2}</span>').format(names, len(paths), place)


def pick_failure_log(model: RunModel) -> Log | None:
    """Return the log of which the page shows the end: of a run that failed, the one to read first."""
    if model.outcome not in ("failed", "lost") or not model.attempts:
        return None
    log = pick_log(model, model.attempts[-1])
    return log if log and log.tail else None


def build_device_table(model: RunModel) -> Table | None:
    """Return which GPUs and RDMA devices each node gave; None for a run that asks for no GPU."""
    if not model.devices:
        return None
    lines: list[list[Cell]] = [
        [
            item.node,
            _NOT_KNOWN if item.gpus is None else str(item.gpus),
            item.model or _NOT_KNOWN,
            item.driver or _NOT_KNOWN,
            _NOT_KNOWN if item.rdma is None else fmt.join_names(list(item.rdma), 8) or "none",
        ]
        for item in model.devices
    ]
    return Table(
        ("Node", "GPUs", "Model", "Driver", "RDMA devices"),
        lines,
        "What each node gave to the last attempt, as it said itself when that began",
        " n",
        compact=True,
        fold=f"All {len(lines)} nodes" if len(lines) > MOST_ROWS else None,
    )


def build_usage(model: RunModel) -> tuple[list[Plot], Table | None]:
    """Return the use and the memory of each node as plots, and as a table; nothing where they were not measured."""
    if not model.run.usage:
        return [], None
    by_node: dict[str, list[Usage]] = {}
    for sample in model.run.usage:
        by_node.setdefault(sample.node, []).append(sample)
    lines = [_usage_line(name, by_node[name]) for name in sorted(by_node, key=parsing.natural_key)]
    table = Table(
        ("Node", "GPU", "CPU", "Memory"),
        lines,
        "Mean of all samples, and the peak in brackets; of the memory, the peak",
        " nnn",
        compact=True,
        fold=f"Figures of all {len(lines)} nodes" if len(lines) > MOST_ROWS else None,
    )
    return _usage_plots(model, sorted(by_node)), table


def _usage_plots(model: RunModel, nodes: t.Sequence[str]) -> list[Plot]:
    """Return the use of the processors and of the memory; lines have a key, shades say what they mean."""
    drawn = []
    use, memory = figures.draw_usage(model), figures.draw_memory(model)
    few = len(nodes) <= len(SERIES)
    keys = build_legend(*(build_key("\N{EM DASH}", node, f"series-{index}") for index, node in enumerate(nodes) if few))
    if use:
        picture, measured = use
        if len(nodes) < figures.FEWEST_SHADES:
            drawn.append(Plot(*picture, Markup("{} use: {}").format(measured, keys)))
        else:
            hidden = len(nodes) > figures.MAX_USAGE
            more = f" The {figures.MAX_USAGE} least used of {len(nodes)} nodes." if hidden else ""
            drawn.append(Plot(*picture, f"{measured} use, from none (faint) to full (strong).{more}"))
    if memory:
        words = keys if few else f"of the {len(SERIES)} nodes that use the most"
        drawn.append(Plot(*memory, Markup("Memory: {}").format(words)))
    return drawn


def _usage_line(name: str, samples: t.Sequence[Usage]) -> list[Cell]:
    memory = max((sample.memory_gib for sample in samples if sample.memory_gib is not None), default=None)
    return [
        name,
        _mean_and_peak(sample.gpu_percent for sample in samples),
        _mean_and_peak(sample.cpu_percent for sample in samples),
        f"{fmt.format_figure(memory)} GiB" if memory is not None else fmt.UNKNOWN,
    ]


def _mean_and_peak(samples: t.Iterable[float | None]) -> str:
    values = [value for value in samples if value is not None]
    return f"{fmt.format_percent(statistics.fmean(values))} ({max(values):.0f})" if values else fmt.UNKNOWN


@dataclasses.dataclass(frozen=True)
class IslandView:
    """The fabric verdict of one island, as the page shows it."""

    mark: Markup
    name: str
    summary: str
    causes: Table | None
    drawing: Plot | None
    pairs: Table | None


def build_islands(model: RunModel) -> list[IslandView]:
    """Return the fabric verdict of each island with the picture of its pairs."""
    return [_build_island(verdict, index) for index, verdict in enumerate(model.verdicts)]


def _build_island(verdict: dict[str, object], index: int) -> IslandView:
    outcome = parsing.read_text(verdict.get("outcome"), 20) or "unproven"
    transport = parsing.read_mapping(verdict.get("transport"))
    picture = figures.draw_pairs(verdict, str(index))
    causes: list[list[Cell]] = [
        [
            parsing.read_text(row.get("node")) or fmt.UNKNOWN,
            *(parsing.read_text(row.get(k)) for k in ("evidence", "fix")),
        ]
        for row in parsing.read_rows(verdict.get("causes"))
    ]
    return IslandView(
        mark=build_mark(_FABRIC_TONES.get(outcome, "warn"), outcome),
        name=parsing.read_text(verdict.get("island"), 80) or "island",
        summary=_fabric_words(verdict, transport),
        causes=Table(("Node", "What was seen", "How to fix it"), causes, "Causes") if causes else None,
        drawing=Plot(*picture, _slowest_pair_words(verdict)) if picture else None,
        pairs=_pair_table(transport),
    )


def _fabric_words(verdict: dict[str, object], transport: dict[str, object]) -> str:
    lane = parsing.read_text(verdict.get("lane"), 20)
    ranks = parsing.read_mapping(verdict.get("ranks"))
    seen, expected = parsing.read_integer(ranks.get("seen")), parsing.read_integer(ranks.get("expected"))
    wrong = parsing.read_integer(verdict.get("wrong_values"))
    parts = [
        f"lane {lane}" if lane else None,
        f"transport {parsing.read_text(transport.get('verdict')) or 'unproven'}",
        _bandwidth_words(parsing.read_mapping(verdict.get("bandwidth"))),
        f"{fmt.format_count(seen)} of {fmt.plural(expected, 'rank')}" if expected is not None else None,
        fmt.plural(wrong, "wrong value") if wrong is not None else None,
    ]
    return "; ".join(part for part in parts if part) + "."


def _bandwidth_words(bandwidth: dict[str, object]) -> str | None:
    busbw, expected, ratio = (
        parsing.read_number(bandwidth.get(key)) for key in ("busbw_gb_s", "expected_gb_s", "ratio")
    )
    if busbw is None:
        return None
    words = f"{fmt.format_figure(busbw)} GB/s bus bandwidth"
    if not ratio or not expected:
        return words
    source = parsing.read_text(bandwidth.get("expectation_source"), 20)
    words += f", {fmt.format_percent(ratio * 100)} of the {fmt.format_figure(expected)} expected"
    return f"{words} ({source})" if source else words


def _slowest_pair_words(verdict: dict[str, object]) -> str:
    pair = parsing.read_mapping(verdict.get("slowest_pair"))
    first, second = (parsing.read_text(pair.get(key), 60) for key in ("a", "b"))
    rate = parsing.read_number(pair.get("busbw_gb_s"))
    gb_s = f", {fmt.format_figure(rate)} GB/s" if rate is not None else ""
    named = f" Slowest: {first} and {second}{gb_s}." if first else ""
    return f"GB/s of each pair, columns in the order of the rows; the slowest pair is framed.{named}"


def _pair_table(transport: dict[str, object]) -> Table | None:
    pairs = parsing.read_rows(transport.get("pairs"))
    if not pairs:
        return None
    ranked = sorted(pairs, key=lambda pair: parsing.read_number(pair.get("busbw_gb_s")) or float("inf"))[:120]
    lines: list[list[Cell]] = []
    for pair in ranked:
        names = [parsing.read_text(pair.get(key), 80) or fmt.UNKNOWN for key in ("a", "b", "via")]
        rate = fmt.format_figure(parsing.read_number(pair.get("busbw_gb_s")))
        lines.append([*names, rate, parsing.read_text(pair.get("evidence"))])
    more = f", the {len(lines)} slowest of {len(pairs)}" if len(pairs) > len(lines) else ""
    fold = f"Evidence of {fmt.plural(len(pairs), 'pair')}"
    return Table(
        ("From", "To", "Via", "GB/s", "Evidence"), lines, f"Pairs with their evidence{more}", "   n", fold=fold
    )
