# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read provider answers: the outer shape is checked, a single odd value inside becomes unknown (None).

A listing without the documented shape is an error, never an empty list: an empty list would mean that nothing exists.
"""

# pylint: disable=unidiomatic-typecheck  # subclasses are meant to be refused
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized

from ...module_utils._http.clock import Deadline
from ...module_utils._model.errors import TransportError
from ...module_utils._model.lease import parse_instance_name
from ...module_utils._model.quantity import parse_finite
from ...module_utils._model.timestamps import format_whole_seconds

JsonObject = dict[str, object]
MAX_PAGES = 1000
# Pages that shift while they are read repeat some items, not page after page.
_EMPTY_PAGES = 3
_ERROR_KEYS = ("errors", "error", "message", "msg", "detail", "title")
_ERROR_CHARS = 120
# What a token stands behind in an environment or in tags.
_TOKEN_WORDS = ("MUSTER_TOKEN", "muster-token")


def unexpected_answer(api: str, problem: str) -> TransportError:
    """Return the error for a JSON answer of another shape than the API promises."""
    return TransportError(f"{api}: unexpected answer ({problem})", "The API may have changed")


def read_items(data: object, key: str, api: str) -> list[JsonObject]:
    """Return the objects listed under ``key`` of an answer, or raise :class:`TransportError`."""
    listed = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(listed, list):
        raise unexpected_answer(api, f"no list '{key}'")
    if not all(isinstance(item, dict) for item in listed):
        raise unexpected_answer(api, f"'{key}' holds an item that is not an object")
    return listed


def check_count(listed: Sized, total: object, api: str) -> None:
    """Raise :class:`TransportError` for a listing that counts more than it shows: what it lacks may bill."""
    count = whole(total)
    if count is not None and len(listed) < count:
        raise unexpected_answer(api, f"the listing shows {len(listed)} of {count}")


def unique_items(listed: Iterable[JsonObject], key: str, api: str) -> list[JsonObject]:
    """Return the items once each, by their ``key`` (the last wins, the order of the first is kept).

    Pages that shift while they are read list an item twice. What was shown as rented by the collection is not hidden
    by an item that does not show it. An item without id cannot be told from another.
    """
    by_name: dict[str, JsonObject] = {}
    for item in listed:
        name = item.get(key)
        if type(name) is not str or not name:
            name = text(name)
            if name is None:
                raise unexpected_answer(api, f"an item without '{key}'")
        if name not in by_name or shows_token(item) or not shows_token(by_name[name]):
            by_name[name] = item
    return list(by_name.values())


def shows_token(item: JsonObject) -> bool:
    """Return whether an item has a name that the collection gave, or holds a token of it."""
    named = (parse_instance_name(text(item.get(key))) for key in ("name", "label", "hostname"))
    return any(named) or any(word in repr(item) for word in _TOKEN_WORDS)


def read_pages(
    fetch: Callable[[str | None], tuple[list[JsonObject], str | None]], api: str, deadline: Deadline
) -> list[JsonObject]:
    """Return the items of all pages; ``fetch`` takes a cursor (None first) and returns items and the next cursor.

    A cursor that repeats would loop for ever, and stopping there would return an incomplete listing: an error, like
    pages that bring nothing new, and a listing that is not complete at its ``deadline``.
    """
    collected: list[JsonObject] = []
    seen: set[str] = set()
    known: set[str] = set()
    empty_pages = 0
    cursor: str | None = None
    for _page in range(MAX_PAGES):
        if collected and not deadline.seconds_left():
            raise unexpected_answer(api, "the listing is not complete in time")
        listed, cursor = fetch(cursor)
        fresh = {str(item.get("id")) for item in listed} - known
        known |= fresh
        empty_pages = 0 if fresh else empty_pages + 1
        if empty_pages >= _EMPTY_PAGES:
            raise unexpected_answer(api, "the listing has pages without anything new")
        collected += listed
        if cursor is None:
            return collected
        if cursor in seen:
            raise unexpected_answer(api, "the listing repeats its pages")
        seen.add(cursor)
    raise unexpected_answer(api, f"more than {MAX_PAGES} pages")


def pick(raw: Mapping[str, object], names: Iterable[str]) -> JsonObject:
    """Return only the named keys that are there: what is not on the list may hold a secret."""
    return {name: raw[name] for name in names if name in raw}


def text(value: object) -> str | None:
    """Return text or a whole number as text; None for anything else and for empty text.

    Unprintable characters are replaced: names are written to terminals and files.
    """
    if isinstance(value, str):
        return (value if value.isprintable() else printable(value)) or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def require_text(value: object) -> str:
    """Return an id of an answer. Raises ValueError for null, empty text or anything else."""
    result = text(value)
    if result is None:
        raise ValueError("no id")
    return result


def printable(value: str) -> str:
    """Return ``value`` with a replacement character for each unprintable one."""
    return "".join(char if char.isprintable() else "\ufffd" for char in value)


def number(value: object) -> float | None:
    """Return a finite number not below zero, also from text such as ``"1.5"``; else None."""
    return parse_finite(value, minimum=0)


def positive(value: object) -> float | None:
    """Return a number above zero, else None: nothing that bills is free, so a price of zero is one not known."""
    return number(value) or None


def whole(value: object, limit: int = 2**31 - 1) -> int | None:
    """Return a whole number from zero to ``limit``; None for a fraction or anything else."""
    result = number(value)
    return int(result) if result is not None and result <= limit and result == int(result) else None


def flag(value: object) -> bool | None:
    """Return a boolean, None for anything else."""
    return value if isinstance(value, bool) else None


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def texts(value: object) -> list[str]:
    """Return the texts in a list, none for anything else (null where a list was promised)."""
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []


def objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects in a list, none for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def moment(value: object) -> str | None:
    """Return an ISO 8601 time as it came; None for empty ones and for Go's zero time, which means unset."""
    time = text(value)
    return None if time is None or time.startswith("0001-01-01") else time


def epoch(value: object) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC, None when they are none."""
    seconds = number(value)
    if not seconds or seconds > 4e9:
        return None
    return format_whole_seconds(seconds)


def error_words(value: object) -> str:
    """Return the words of an error of unknown shape, of several the first; empty where it has none."""
    first = value[0] if isinstance(value, list) and value else value
    error = as_mapping(first)
    found = next((error[key] for key in _ERROR_KEYS if error.get(key)), first)
    if found is not first:
        return error_words(found)
    return printable(first)[:_ERROR_CHARS] if isinstance(first, str) else ""


def join_texts(*parts: object) -> str:
    """Return the texts among ``parts`` joined by a colon, for error details."""
    return ": ".join(str(part) for part in parts if isinstance(part, str) and part)
