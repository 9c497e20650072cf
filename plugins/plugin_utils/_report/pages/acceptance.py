# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders the page of an acceptance: the verdict, a line for each test, the table of sizes, and what to do."""

from __future__ import annotations

import typing as t

from ..data import format as fmt
from ..data import parsing
from ..rules.verdict import RunVerdict, Tone
from .rendering import Cell, Table, build_mark, render

Row = t.Mapping[str, object]
_WORDS: dict[str, tuple[str, Tone]] = {
    "pass": ("Accepted", "ok"),
    "warn": ("Accepted, with warnings", "warn"),
    "unproven": ("Not accepted: not all proven", "warn"),
    "fail": ("Not accepted", "bad"),
}
_MARKS: dict[str, tuple[str, str]] = {
    "pass": ("passed", "ok"),
    "warn": ("warning", "warn"),
    "unproven": ("not proven", "warn"),
    "fail": ("failed", "bad"),
    "not_applicable": ("does not apply", "calm"),
}
_TITLES = {
    "fabric": "Fabric",
    "scaling": "Scaling",
    "queue": "Two gangs, room for one",
    "user": "A plain user's rights",
    "resume": "Kill and resume",
}
_SIZES = ("Nodes", "Ranks", "Samples/s", "Efficiency", "Step", "Loss", "Compute", "Input", "Straggler", "Communication")
_LOSSES = ("compute", "input", "straggler", "communication")


def render_acceptance(value: Row) -> str:
    """Return the page of accept.json."""
    parts = parsing.read_rows(value.get("parts"))
    word, tone = _WORDS.get(str(value.get("outcome")), ("Unknown", "warn"))
    where = "a cluster" if value.get("backend") == "kubernetes" else "plain hosts"
    started = f", started {value['started_at']}" if value.get("started_at") else ""
    cluster = parsing.read_text(value.get("cluster"))
    loopback = "All nodes are on the loopback of one machine: the figures say nothing about a network."
    return render(
        "acceptance.html.j2",
        title=f"Acceptance of {cluster or 'a fleet'}: {word}",
        kicker=f"Acceptance {parsing.read_text(value.get('accept_id')) or ''} of {where}{started}",
        heading=cluster or fmt.UNKNOWN,
        caveat=loopback if value.get("loopback") else None,
        verdict=RunVerdict(word, tone, _count_outcomes(parts)),
        figures=_build_figures(value, parts),
        tests=_test_table(parts),
        sizes=_size_table(parts),
        reasons=_list_reasons(parts),
    )


def _count_outcomes(parts: t.Sequence[Row]) -> str:
    counts = [(word, sum(part.get("outcome") == name for part in parts)) for name, (word, _tone) in _MARKS.items()]
    return "Of the tests " + ", ".join(f"{number} {word}" for word, number in counts if number) + "."


def _build_figures(value: Row, parts: t.Sequence[Row]) -> list[tuple[str, str]]:
    points = _scaling_points(parts)
    drill = next((parsing.read_mapping(part.get("drill")) for part in parts if part.get("name") == "resume"), {})
    return [
        ("Nodes", fmt.format_count(parsing.read_integer(value.get("nodes")))),
        ("Efficiency", _format_share(points[-1].get("efficiency") if points else None)),
        ("Resumed in", fmt.format_duration(parsing.read_number(drill.get("seconds_to_resume")))),
        ("Duration", fmt.format_duration(parsing.read_number(value.get("duration_s")))),
    ]


def _test_table(parts: t.Sequence[Row]) -> Table:
    lines: list[list[Cell]] = []
    for part in parts:
        word, tone = _MARKS.get(str(part.get("outcome")), ("unknown", "warn"))
        name = str(part.get("name"))
        summary = parsing.read_text(part.get("summary"), 400) or fmt.UNKNOWN
        lines.append([_TITLES.get(name, name), build_mark(tone, word), summary])
    return Table(("Test", "Result", "Evidence"), lines, "Each test and its result")


def _scaling_points(parts: t.Sequence[Row]) -> list[dict[str, object]]:
    return [row for part in parts if part.get("name") == "scaling" for row in parsing.read_rows(part.get("points"))]


def _size_table(parts: t.Sequence[Row]) -> Table | None:
    lines = [_size_line(row) for row in _scaling_points(parts)]
    return Table(_SIZES, lines, "Steps by number of nodes (ms)", "n" * len(_SIZES)) if lines else None


def _size_line(row: Row) -> list[Cell]:
    losses = parsing.read_mapping(row.get("loss"))
    return [
        *(fmt.format_count(parsing.read_integer(row.get(key))) for key in ("nodes", "ranks")),
        fmt.format_figure(parsing.read_number(row.get("samples_per_s"))),
        _format_share(row.get("efficiency")),
        *(_format_ms(row.get(key)) for key in ("step_s", "loss_s")),
        *(_format_ms(losses.get(key)) for key in _LOSSES),
    ]


def _format_share(value: object) -> str:
    share = parsing.read_number(value)
    return fmt.format_percent(share * 100) if share is not None else fmt.UNKNOWN


def _format_ms(value: object) -> str:
    seconds = parsing.read_number(value)
    return fmt.format_figure(seconds * 1e3) if seconds is not None else fmt.UNKNOWN


def _list_reasons(parts: t.Sequence[Row]) -> list[str]:
    reasons = []
    for part in parts:
        name, texts = str(part.get("name")), part.get("reasons")
        for reason in texts if isinstance(texts, list) else []:
            reasons.append(f"{_TITLES.get(name, name)}: {parsing.read_text(reason, 600) or ''}")
    return reasons
