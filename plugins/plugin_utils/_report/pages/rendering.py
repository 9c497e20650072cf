# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders the pages from the Jinja templates beside this file, and holds the parts of which their values are made.

Jinja escapes every text that is not Markup.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import typing as t

import jinja2
from markupsafe import Markup

from ..data.format import UNKNOWN
from .css import style_sheet

SYMBOLS = {
    "ok": "\N{CHECK MARK}",
    "warn": "!",
    "bad": "\N{MULTIPLICATION X}",
    "live": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "calm": "\N{BLACK SQUARE}",
}
# A table with a row for each node is folded from more rows on: on two sheets of paper there is no room for it.
MOST_ROWS = 4
# Markup is a subclass of str.
Cell = str | None


class Plot(t.NamedTuple):
    """A figure drawn for a wide and for a narrow screen, with its caption."""

    wide: Markup
    narrow: Markup
    caption: Cell


class Column(t.NamedTuple):
    """A column of a table that is shown."""

    position: int
    heading: str
    numeric: bool


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: ``numeric`` has an ``n`` for each column of numbers; one with ``fold`` is folded under these words.

    ``compact`` is for few columns of short values: such a table keeps its form on a narrow screen. One with ``is_list``
    says by itself what its columns are: there it has no labels.
    """

    headings: t.Sequence[str]
    lines: t.Sequence[t.Sequence[Cell]]
    caption: str
    numeric: str = ""
    compact: bool = False
    fold: str | None = None
    is_list: bool = False

    @property
    def columns(self) -> list[Column]:
        """The first column, and each of the others of which some line has a value."""
        return [
            Column(index, heading, self.numeric[index : index + 1] == "n")
            for index, heading in enumerate(self.headings)
            if not index or any(line[index] != UNKNOWN for line in self.lines)
        ]


def render(template: str, **values: object) -> str:
    """Return the page that a template makes of ``values``; ``title`` is the page's title."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: "" if value is None else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(style_sheet=Markup(style_sheet()), symbols=SYMBOLS, unknown=UNKNOWN)
    return environment


def build_mark(tone: str, word: str) -> Markup:
    """Return a word with the symbol and the colour of its tone."""
    symbol = SYMBOLS[tone] if tone != "calm" else UNKNOWN
    return Markup('<span class="mark t-{0}"><span aria-hidden="true">{1}</span> {2}</span>').format(tone, symbol, word)


def build_key(symbol: str, meaning: str, colour: str = "accent") -> Markup:
    """Return an entry of a picture's legend."""
    return Markup('<span class="key"><b style="--k:var(--{0})">{1}</b> {2}</span>').format(colour, symbol, meaning)


def build_legend(*keys: Markup | None) -> Markup:
    """Return the entries of a legend, one after the other."""
    return Markup(" · ").join(key for key in keys if key)


def add_note(value: str, note: str | None) -> str:
    """Return a figure with a small note behind it; nothing is added to one that is not known."""
    return Markup("{0} <small>{1}</small>").format(value, note) if note and value != UNKNOWN else value
