# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of an acceptance: one verdict, a line for each part, the table of sizes, and what to do.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ..data import format as fmt
from ..data import parsing
from ..rules.verdict import RunVerdict, Tone
from .html import Child, Html, join, pairs, section, table, tag
from .page import document as page
from .page_summary import verdict_block

Dict = t.Mapping[str, t.Any]
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


def render_acceptance(value: Dict) -> str:
    """Return the page of accept.json."""
    parts = parsing.read_rows(value.get("parts"))
    outcome = str(value.get("outcome"))
    word, tone = _WORDS.get(outcome, ("Unknown", "warn"))
    content = join(
        _head(value),
        verdict_block(RunVerdict(word, tone, _sentence(parts))),
        pairs(_figures(value, parts), "figures"),
        section("What was tested", _table(parts)),
        _sizes(parts),
        _reasons(parts),
        tag("footer", tag("p", "Made by muster.training. The same as values: accept.json.")),
    )
    return page(f"Acceptance of {parsing.read_text(value.get('cluster')) or 'a fleet'}: {word}", content)


def _head(value: Dict) -> Html:
    where = "a cluster" if value.get("backend") == "kubernetes" else "plain hosts"
    began = f", begun {value['started_at']}" if value.get("started_at") else ""
    said = "All nodes are on the loopback of one machine: the figures say nothing about a network."
    return tag(
        "header",
        tag("p", f"Acceptance {parsing.read_text(value.get('accept_id')) or ''} of {where}{began}", class_="kicker"),
        tag("h1", parsing.read_text(value.get("cluster")) or fmt.UNKNOWN),
        tag("p", said, class_="caveat") if value.get("loopback") else None,
    )


def _sentence(parts: t.Sequence[Dict]) -> str:
    counts = [
        (word, sum(1 for part in parts if part.get("outcome") == name)) for name, (word, _unused) in _MARKS.items()
    ]
    return "Of the tests " + ", ".join(f"{number} {word}" for word, number in counts if number) + "."


def _figures(value: Dict, parts: t.Sequence[Dict]) -> list[tuple[str, Child]]:
    points = _points(parts)
    last = points[-1] if points else {}
    share = parsing.read_number(last.get("efficiency"))
    drill = next((parsing.read_mapping(part.get("drill")) for part in parts if part.get("name") == "resume"), {})
    return [
        ("Nodes", fmt.format_count(parsing.read_integer(value.get("nodes")))),
        ("Efficiency", fmt.format_percent(share * 100) if share is not None else fmt.UNKNOWN),
        ("Resumed in", fmt.format_duration(parsing.read_number(drill.get("seconds_to_resume")))),
        ("Duration", fmt.format_duration(parsing.read_number(value.get("duration_s")))),
    ]


def _table(parts: t.Sequence[Dict]) -> Html:
    lines: list[list[Child]] = []
    for part in parts:
        word, tone = _MARKS.get(str(part.get("outcome")), ("unknown", "warn"))
        name = str(part.get("name"))
        mark = tag("span", word, class_=f"mark t-{tone}")
        lines.append([_TITLES.get(name, name), mark, parsing.read_text(part.get("summary"), 400) or fmt.UNKNOWN])
    return table(("Test", "Result", "What was seen"), lines, "Each test and what came of it")


def _points(parts: t.Sequence[Dict]) -> list[Dict]:
    return [row for part in parts if part.get("name") == "scaling" for row in parsing.read_rows(part.get("points"))]


def _sizes(parts: t.Sequence[Dict]) -> Html:
    points = _points(parts)
    if not points:
        return Html("")
    lines: list[list[Child]] = []
    for row in points:
        share, losses = parsing.read_number(row.get("efficiency")), parsing.read_mapping(row.get("loss"))
        lines.append(
            [
                fmt.format_count(parsing.read_integer(row.get("nodes"))),
                fmt.format_count(parsing.read_integer(row.get("ranks"))),
                fmt.format_figure(parsing.read_number(row.get("samples_per_s"))),
                fmt.format_percent(share * 100) if share is not None else fmt.UNKNOWN,
                _ms(row.get("step_s")),
                _ms(row.get("loss_s")),
                *(_ms(losses.get(key)) for key in _LOSSES),
            ]
        )
    lead = (
        "A fixed batch per rank. Loss is what a step takes more than on the first line, in milliseconds; it is split "
        "into what compute, input and stragglers take more, and the communication that the backward pass does not hide."
    )
    return section("How it scales", table(_SIZES, lines, "Steps by number of nodes (ms)", "n" * len(_SIZES)), lead=lead)


def _ms(value: t.Any) -> str:
    number = parsing.read_number(value)
    return fmt.format_figure(number * 1e3) if number is not None else fmt.UNKNOWN


def _reasons(parts: t.Sequence[Dict]) -> Html:
    items = []
    for part in parts:
        name = str(part.get("name"))
        found = part.get("reasons")
        for reason in found if isinstance(found, list) else []:
            items.append(tag("li", tag("p", f"{_TITLES.get(name, name)}: {parsing.read_text(reason, 600) or ''}")))
    return section("Reasons and what to do", tag("ul", *items, class_="steps")) if items else Html("")
