# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML by construction: text becomes markup only through :func:`tag`, which escapes it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import html
import typing as t

from ..data.format import UNKNOWN

_VOID = {"meta", "br", "hr"}


class Html(str):
    """Markup that is safe to put into a page. Plain ``str`` is never taken for markup."""

    __slots__ = ()


Child = str | Html | None


def escape(value: str) -> Html:
    """Return text as markup."""
    return value if isinstance(value, Html) else Html(html.escape(value, quote=True))


def join(*children: Child) -> Html:
    """Return the children one after the other; None is nothing."""
    return Html("".join(escape(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: str | None) -> Html:
    """Return an element. ``class_`` and ``data_label`` become ``class`` and ``data-label``; None leaves one out."""
    spelt = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{spelt}>")
    return Html(f"<{name}{spelt}>{join(*children)}</{name}>")


def table(
    headings: t.Sequence[str],
    lines: t.Sequence[t.Sequence[Child]],
    caption: str,
    numeric: str = "",
    *,
    compact: bool = False,
) -> Html:
    """Return a table; ``numeric`` has an ``n`` for each column of numbers.

    On a narrow screen its lines are stacked, unless it is ``compact``: few columns of short values. A column of which
    nothing is known in any line is left out, the first one excepted. The roles are written out because a stacked
    table (``display: block``) loses them in some screen readers.
    """
    kept = [place for place in range(len(headings)) if not place or any(line[place] != UNKNOWN for line in lines)]
    kinds = {place: "num" if numeric[place : place + 1] == "n" else None for place in kept}
    head = [tag("th", headings[place], scope="col", role="columnheader", class_=kinds[place]) for place in kept]
    body = []
    for line in lines:
        cells = [
            tag("td", tag("span", line[place]), role="cell", class_=kinds[place], data_label=headings[place])
            for place in kept
        ]
        body.append(tag("tr", *cells, role="row"))
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
        class_="compact" if compact else None,
    )


def pairs(items: t.Iterable[tuple[str, Child]], class_: str) -> Html:
    """Return a list of terms with their values."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", value)) for term, value in items), class_=class_)


def section(title: str, *children: Child, lead: str | None = None) -> Html:
    """Return a titled section, or nothing when it has no content."""
    if not any(children):
        return Html("")
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, *children)


def plot(wide: Html, narrow: Html, caption: Child) -> Html:
    """Return a figure drawn twice, for a wide and for a narrow screen; the style shows one of them."""
    return tag("figure", wide, narrow, tag("figcaption", caption))


def code(command: str) -> Html:
    """Return a command to copy."""
    return tag("pre", tag("code", command), class_="command", tabindex="0")
