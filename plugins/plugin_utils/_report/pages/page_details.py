# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lower part of a run's page: time line, curves, attempts, proofs, nodes and fabric.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import statistics
import typing as t

from ..data import format as fmt
from ..data import parsing
from ..data.attempts import EXITS, AttemptView
from ..data.faults import Fault
from ..data.load import Usage
from ..data.run_model import RunModel
from ..rules.advice import pick_log
from ..rules.checks import ReportCheck, build_checks
from . import figures
from .html import Child, Html, join, plot, section, table, tag
from .page_summary import SYMBOLS
from .timeline import build_phases, draw_timeline, marked_events

_TONES = {"passed": "ok", "failed": "bad", "unproven": "warn", "skipped": "calm"}
MOST_CHECKS = 16
_FABRIC_TONES = {"pass": "ok", "warn": "warn", "fail": "bad"}


def mark(tone: str, word: str) -> Html:
    """Return a word with its symbol and colour."""
    symbol = tag("span", SYMBOLS[tone] if tone != "calm" else "\N{EN DASH}", aria_hidden="true")
    return tag("span", symbol, " " + word, class_=f"mark t-{tone}")


def _key(symbol: str, meaning: str, colour: str = "accent") -> Html:
    return tag("span", tag("b", symbol, style=f"--k:var(--{colour})"), " " + meaning, class_="key")


def _legend(*keys: Html | None) -> Html:
    """Return the keys of a picture, one after the other."""
    found = [key for key in keys if key]
    return join(*(join(key, " · " if index + 1 < len(found) else None) for index, key in enumerate(found)))


def proofs(case: RunModel) -> Html:
    """Return every check with its result; of very many, those that passed are folded away."""
    checks = build_checks(case)
    open_first = [check for check in checks if len(checks) <= MOST_CHECKS or check.status != "passed"]
    folded = [check for check in checks if check not in open_first]
    shown = _check_table(open_first[:200], "What this run claims, and what was seen of it")
    if not folded:
        return section("Proof", shown)
    summary = tag("summary", f"{fmt.plural(len(folded), 'more claim')} passed")
    return section("Proof", shown, tag("details", summary, _check_table(folded[:200], "Claims that passed")))


def _check_table(checks: t.Sequence[ReportCheck], caption: str) -> Html:
    lines: list[list[Child]] = []
    for check in checks:
        word = {"skipped": "not checked"}.get(check.status, check.status)
        # A short claim stays on one line beside a long piece of evidence.
        title = tag("span", check.title, class_="key") if len(check.title) < 24 else check.title
        lines.append([title, mark(_TONES[check.status], word), check.message])
    return table(("Claim", "Result", "Evidence"), lines, caption)


def time_line(case: RunModel) -> Html:
    """Return the time line with its key."""
    drawn = draw_timeline(case)
    if drawn is None:
        return section("Time line", tag("p", "The times of this run are not known."))
    kinds, phases = {event.kind for event in marked_events(case)}, {segment.kind for segment in build_phases(case)}
    saved = any(part.checkpoints for part in case.run.segments)
    keys = _legend(
        _key("\N{LOWER SEVEN EIGHTHS BLOCK}", "training"),
        _key("\N{LOWER SEVEN EIGHTHS BLOCK}", "starting", "heat-3") if "start" in phases else None,
        _key("\N{LOWER SEVEN EIGHTHS BLOCK}", "waiting", "heat-1") if "wait" in phases else None,
        _key("|", "checkpoint") if saved else None,
        _key("×", "process or node lost", "bad") if kinds & {*EXITS, "node_lost"} else None,
        _key("\N{BLACK DOWN-POINTING TRIANGLE}", "drill", "warn") if "drill" in kinds else None,
        _key("\N{BLACK SQUARE}", "cancelled", "warn") if "cancelled" in kinds else None,
        _key("\N{BLACK CIRCLE}", "node back") if "node_back" in kinds else None,
    )
    return section("Time line", plot(*drawn, keys), _hidden_nodes(case))


def _hidden_nodes(case: RunModel) -> Html | None:
    names = {stay.name for attempt in case.attempts for stay in attempt.nodes}
    more = len(names) - figures.MAX_ROWS
    return tag("p", f"{fmt.plural(more, 'more node')} took part without an event of their own.") if more > 0 else None


def training(case: RunModel) -> Html:
    """Return the curves of loss and throughput."""
    loss, rate = figures.draw_loss(case), figures.draw_throughput(case)
    if loss is None and rate is None:
        return section("Training", tag("p", "The program wrote no figures to MUSTER_METRICS_FILE."))
    keys = _legend(
        _key("\N{EM DASH}", "loss"),
        _key("\N{LOWER SEVEN EIGHTHS BLOCK}", "steps done again", "heat-2") if any(case.lost) else None,
        _key("×", "fault", "bad") if case.faults else None,
        _key("\N{WHITE CIRCLE}", "resumed from here") if case.faults else None,
        _key("|", "checkpoint") if any(part.checkpoints for part in case.run.segments) else None,
    )
    own = "as the program reported it" if case.throughput is not None else "computed from the times of the steps"
    hatched = ", hatched where no step was made" if case.faults else ""
    return section(
        "Training",
        plot(*loss[0], join(keys, _above(loss[1]))) if loss else None,
        plot(*rate, f"Throughput in {case.unit}, {own}{hatched}.") if rate else None,
    )


def _above(highest: float | None) -> str | None:
    return (
        f". The first steps, up to {fmt.format_figure(highest)}, lie above the picture."
        if highest is not None
        else None
    )


def attempts(case: RunModel) -> Html:
    """Return the attempts, what each fault cost, and the last lines of the log to read first."""
    if not case.attempts:
        return section("Attempts", tag("p", "No attempt was recorded."))
    faults = {fault.attempt.label: fault for fault in case.faults}
    headings = ("Attempt", "Ended by", "Node", "Exit code", "Steps", "Lost", "Time lost", "Lasted", "Logs")
    lines = [_attempt_line(case, item, faults.get(item.label)) for item in case.attempts]
    shown = lines if len(lines) <= 20 else [*lines[:10], *lines[-10:]]
    left_out = f"; {len(lines) - 20} in the middle are left out" if len(lines) > 20 else ""
    caption = f"Lost: steps done and then done again{left_out}"
    return section("Attempts", table(headings, shown, caption, "   nnnnn"), _log_tail(case))


def _attempt_line(case: RunModel, item: AttemptView, fault: Fault | None) -> list[Child]:
    cause = (item.cause or "").replace("_", " ") + (" (drill)" if item.drilled and item.cause != "drill" else "")
    if not cause:
        last = item is case.attempts[-1]
        cause = {"succeeded": "finished", "running": "running"}.get(case.outcome, "") if last else ""
    steps = fmt.UNKNOWN
    if item.first_step is not None and item.last_step is not None:
        steps = f"{fmt.format_count(item.first_step)}\N{EN DASH}{fmt.format_count(item.last_step)}"
    lasted = item.end - item.start if item.end is not None and item.start is not None else None
    rank = f", rank {item.rank}" if item.rank is not None else ""
    return [
        item.label,
        cause or "not known",
        f"{item.node}{rank}" if item.node else fmt.UNKNOWN,
        fmt.UNKNOWN if item.exit_code is None else str(item.exit_code),
        steps,
        fmt.format_count(fault.steps_lost) if fault else fmt.UNKNOWN,
        fmt.format_duration(fault.seconds_lost) if fault else fmt.UNKNOWN,
        fmt.format_duration(lasted),
        _logs(item),
    ]


def _logs(item: AttemptView) -> Html:
    if not item.logs:
        return join(fmt.UNKNOWN)
    if len(item.logs) <= 2:
        return join(*(join(tag("br") if place else None, tag("code", path)) for place, path in enumerate(item.logs)))
    folders = {path.rpartition("/")[0] for path in item.logs}
    place = f" in {folders.pop()}/" if len(folders) == 1 else ""
    return tag("span", f"{len(item.logs)} files{place}", title=fmt.join_names(list(item.logs), 12))


def _log_tail(case: RunModel) -> Html | None:
    if case.outcome not in ("failed", "lost"):
        return None
    log = pick_log(case, case.attempts[-1])
    if log is None or not log.tail:
        return None
    return join(
        tag("h3", f"Last lines of {log.path}"),
        tag("pre", tag("code", "\n".join(log.tail)), tabindex="0"),
    )


def nodes(case: RunModel) -> Html:
    """Return the use of each node, or nothing where it was not measured."""
    if not case.run.usage:
        return Html("")
    drawn = figures.draw_usage(case)
    by_node: dict[str, list[Usage]] = {}
    for item in case.run.usage:
        by_node.setdefault(item.node, []).append(item)
    names = sorted(by_node, key=parsing.natural_key)
    lines: list[list[Child]] = []
    for name in names:
        own = by_node[name]
        memory = max((item.memory_gib for item in own if item.memory_gib is not None), default=None)
        used = [_mean_and_peak([item.gpu_percent for item in own]), _mean_and_peak([item.cpu_percent for item in own])]
        lines.append([name, *used, f"{fmt.format_figure(memory)} GiB" if memory is not None else fmt.UNKNOWN])
    caption = "Mean of all samples, and the peak in brackets; of the memory, the peak"
    listed = table(("Node", "GPU", "CPU", "Memory"), lines, caption, " nnn", compact=True)
    if len(lines) > 12:
        listed = tag("details", tag("summary", f"Figures of all {len(lines)} nodes"), listed)
    if drawn is None:
        return section("Nodes", listed)
    more = f" The {figures.MAX_USAGE} least used of {len(names)} nodes." if len(names) > figures.MAX_USAGE else ""
    return section("Nodes", plot(*drawn[0], f"{drawn[1]} use, from none (faint) to full (strong).{more}"), listed)


def _mean_and_peak(found: t.Iterable[float | None]) -> str:
    known = [value for value in found if value is not None]
    return f"{fmt.format_percent(statistics.fmean(known))} ({max(known):.0f})" if known else fmt.UNKNOWN


def fabric(case: RunModel) -> Html:
    """Return the fabric verdict of each island with the picture of its pairs."""
    if not case.verdicts:
        return section("Fabric", tag("p", "The network between the nodes was not measured."))
    return section("Fabric", *(_island(item, index) for index, item in enumerate(case.verdicts)))


def _island(verdict: dict[str, t.Any], index: int) -> Html:
    name, outcome = (
        parsing.read_text(verdict.get("island"), 80) or "island",
        parsing.read_text(verdict.get("outcome"), 20) or "unproven",
    )
    transport = parsing.read_mapping(verdict.get("transport"))
    drawn = figures.draw_pairs(verdict, str(index))
    causes = [
        [
            parsing.read_text(item.get("node")) or fmt.UNKNOWN,
            parsing.read_text(item.get("evidence")),
            parsing.read_text(item.get("fix")),
        ]
        for item in parsing.read_rows(verdict.get("causes"))
    ]
    return join(
        tag("p", mark(_FABRIC_TONES.get(outcome, "warn"), outcome), f" {name}: {_fabric_words(verdict, transport)}"),
        table(("Node", "What was seen", "What mends it"), causes, "Causes") if causes else None,
        plot(*drawn, _pair_words(verdict)) if drawn else None,
        _pair_table(transport),
    )


def _fabric_words(verdict: dict[str, t.Any], transport: dict[str, t.Any]) -> str:
    rate = parsing.read_mapping(verdict.get("bandwidth"))
    ranks, lane = parsing.read_mapping(verdict.get("ranks")), parsing.read_text(verdict.get("lane"), 20)
    parts = [f"transport {parsing.read_text(transport.get('verdict')) or 'unproven'}"]
    busbw, expected, ratio = (parsing.read_number(rate.get(key)) for key in ("busbw_gb_s", "expected_gb_s", "ratio"))
    if busbw is not None:
        against = (
            f", {fmt.format_percent(ratio * 100)} of the {fmt.format_figure(expected)} expected"
            if ratio and expected
            else ""
        )
        source = parsing.read_text(rate.get("expectation_source"), 20)
        parts.append(
            f"{fmt.format_figure(busbw)} GB/s bus bandwidth{against}{f' ({source})' if source and against else ''}"
        )
    seen, asked = parsing.read_integer(ranks.get("seen")), parsing.read_integer(ranks.get("expected"))
    if asked is not None:
        parts.append(f"{fmt.format_count(seen)} of {fmt.plural(asked, 'rank')}")
    wrong = parsing.read_integer(verdict.get("wrong_values"))
    if wrong is not None:
        parts.append(fmt.plural(wrong, "wrong value"))
    return "; ".join([*([f"lane {lane}"] if lane else []), *parts]) + "."


def _pair_words(verdict: dict[str, t.Any]) -> str:
    slow = parsing.read_mapping(verdict.get("slowest_pair"))
    first, second, rate = (
        parsing.read_text(slow.get("a"), 60),
        parsing.read_text(slow.get("b"), 60),
        parsing.read_number(slow.get("busbw_gb_s")),
    )
    named = (
        f" Slowest: {first} and {second}{f', {fmt.format_figure(rate)} GB/s' if rate is not None else ''}."
        if first
        else ""
    )
    return f"GB/s of each pair, columns in the order of the rows; the slowest pair is framed.{named}"


def _pair_table(transport: dict[str, t.Any]) -> Html | None:
    found = parsing.read_rows(transport.get("pairs"))
    if not found:
        return None
    ranked = sorted(found, key=lambda item: parsing.read_number(item.get("busbw_gb_s")) or float("inf"))[:120]
    lines: list[list[Child]] = []
    for item in ranked:
        names = [parsing.read_text(item.get(key), 80) or fmt.UNKNOWN for key in ("a", "b", "via")]
        lines.append(
            [
                *names,
                fmt.format_figure(parsing.read_number(item.get("busbw_gb_s"))),
                parsing.read_text(item.get("evidence")),
            ]
        )
    more = f", the {len(lines)} slowest of {len(found)}" if len(found) > len(lines) else ""
    listed = table(("From", "To", "Via", "GB/s", "Evidence"), lines, f"Pairs with their evidence{more}", "   n")
    return tag("details", tag("summary", f"Evidence of {fmt.plural(len(found), 'pair')}"), listed)
