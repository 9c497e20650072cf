# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading provider answers: the shape is checked, the rest is taken as far as it makes sense.

A listing that has not the promised shape is an error, never an empty list: an empty list would say that nothing
exists. A single odd value inside an item is unknown (None).

This is a private utility of the collection; it may change without notice.
"""

# pylint: disable=unidiomatic-typecheck  # subclasses are meant to be refused
from __future__ import annotations

import datetime
import typing as t
from collections.abc import Callable, Iterable, Mapping

from ...module_utils._model.errors import TransportError

Raw = dict[str, t.Any]
MAX_PAGES = 1000


def unexpected_answer(api: str, problem: str) -> TransportError:
    """Return the error for a JSON answer of another shape than the API promises."""
    return TransportError(f"{api}: unexpected answer ({problem})", "The API may have changed; nothing was concluded")


def read_items(data: t.Any, key: str, api: str) -> list[Raw]:
    """Return the objects listed under ``key`` of an answer, or raise :class:`TransportError`."""
    listed = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(listed, list):
        raise unexpected_answer(api, f"no list '{key}'")
    if not all(isinstance(item, dict) for item in listed):
        raise unexpected_answer(api, f"'{key}' holds something that is no object")
    return listed


def unique_items(listed: Iterable[Raw], key: str, api: str) -> list[Raw]:
    """Return the items once each, by their ``key`` (the last wins, the order of the first is kept).

    Pages that shift while they are read list an item twice. An item without id cannot be told from another.
    """
    found: dict[str, Raw] = {}
    for item in listed:
        name = item.get(key)
        if type(name) is not str or not name:
            name = text(name)
            if name is None:
                raise unexpected_answer(api, f"an item without '{key}'")
        found[name] = item
    return list(found.values())


def read_pages(fetch: Callable[[str | None], tuple[list[Raw], str | None]], api: str) -> list[Raw]:
    """Return the items of all pages; ``fetch`` takes a cursor (None first) and returns items and the next cursor.

    A cursor that comes again would loop for ever, and stopping there would pass a part for the whole: an error.
    """
    found: list[Raw] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _page in range(MAX_PAGES):
        listed, cursor = fetch(cursor)
        found += listed
        if cursor is None:
            return found
        if cursor in seen:
            raise unexpected_answer(api, "the listing repeats its pages")
        seen.add(cursor)
    raise unexpected_answer(api, f"more than {MAX_PAGES} pages")


def pick(raw: Mapping[str, t.Any], names: Iterable[str]) -> Raw:
    """Return only the named keys that are there: what is not on the list may hold a secret."""
    return {name: raw[name] for name in names if name in raw}


def text(value: t.Any) -> str | None:
    """Return text or a whole number as text; None for anything else and for empty text.

    What cannot be printed is shown as such: names are written to terminals and files.
    """
    if isinstance(value, str):
        return (value if value.isprintable() else printable(value)) or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def printable(value: str) -> str:
    """Return ``value`` with a replacement character for each that is not printable."""
    return "".join(char if char.isprintable() else "\ufffd" for char in value)


def number(value: t.Any) -> float | None:
    """Return a finite number not below zero, also from text such as ``"1.5"``; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < float("inf") else None


def whole(value: t.Any, limit: int = 2**31 - 1) -> int | None:
    """Return a whole number from zero to ``limit``; None for a fraction or anything else."""
    found = number(value)
    return int(found) if found is not None and found <= limit and found == int(found) else None


def flag(value: t.Any) -> bool | None:
    """Return a boolean, None for anything else."""
    return value if isinstance(value, bool) else None


def as_mapping(value: t.Any) -> Mapping[str, t.Any]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def texts(value: t.Any) -> list[str]:
    """Return the texts in a list, none for anything else (null where a list was promised)."""
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []


def objects(value: t.Any) -> list[Mapping[str, t.Any]]:
    """Return the objects in a list, none for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def moment(value: t.Any) -> str | None:
    """Return an ISO 8601 time as it came; None for empty ones and for Go's zero time, which means unset."""
    found = text(value)
    return None if found is None or found.startswith("0001-01-01") else found


def epoch(value: t.Any) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC, None when they are none."""
    seconds = number(value)
    if not seconds or seconds > 4e9:
        return None
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def join_texts(*parts: t.Any) -> str:
    """Return the texts among ``parts`` joined by a colon, for error details."""
    return ": ".join(str(part) for part in parts if isinstance(part, str) and part)
