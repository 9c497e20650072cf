# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads values that programs, nodes and users wrote: no function ever raises.

Names, paths and log lines are hostile input: they reach a page through :func:`read_text` and :func:`clean_line` only.
"""

from __future__ import annotations

import math
import re

from ....module_utils._model import timestamps
from ....module_utils._model.quantity import parse_finite

LIMIT = 300

# C0 and C1 controls and lone surrogates are not allowed in XML 1.0; bidirectional controls can make a line read as
# another one (CVE-2021-42574).
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
# "--max-tokens 9" is a count, "--token abc" is not.
_SECRET_OPTION = re.compile(
    r"(?i)((?:^|[-_.])(?:token|passwords?|passwd|secrets?|credentials?|api[-_]?key|access[-_]?key))(=|$)"
)
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


def read_text(value: object, limit: int = LIMIT) -> str | None:
    """Return printable text of at most ``limit`` characters, or None for nothing, an empty text or a container."""
    if value is None or isinstance(value, (dict, list, tuple, bytes)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    raw = (value if isinstance(value, str) else _to_str(value))[: limit * 4]
    return clean_line(" ".join(raw.split()), limit).strip() or None


def clean_line(raw: str, limit: int = LIMIT) -> str:
    """Return a line of a log: printable, at most ``limit`` characters, its indentation kept."""
    clean = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", raw.expandtabs(4)).rstrip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _to_str(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # an integer of more than 4300 digits
        return "(a very long number)"


def read_number(value: object) -> float | None:
    """Return a finite number, or None. Text is accepted where it is plainly a number; booleans are not numbers."""
    return parse_finite(value)


def read_integer(value: object) -> int | None:
    """Return a whole number below 2^53 in size, or None; 3.0 is 3, 3.5 is None."""
    result = read_number(value)
    return int(result) if result is not None and result.is_integer() and abs(result) < 2**53 else None


def read_time(value: object) -> float | None:
    """Return Unix seconds (UTC) of an ISO 8601 time or a number of seconds; a time without zone is UTC."""
    seconds = read_number(value)
    if seconds is None and isinstance(value, str):
        seconds = timestamps.read_time(value)
    # Years outside 1970..2200 are broken clocks, and would stretch every time axis.
    return seconds if seconds is not None and 0 < seconds < 7.26e9 else None


def read_mapping(value: object) -> dict[str, object]:
    """Return ``value`` when it is a mapping, else an empty one."""
    return {str(key): entry for key, entry in value.items()} if isinstance(value, dict) else {}


def read_rows(value: object) -> list[dict[str, object]]:
    """Return the mappings of a list; other items of the list, and values that are not lists, are left out."""
    return [read_mapping(entry) for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def read_texts(value: object) -> list[str]:
    """Return the non-empty texts of a list."""
    return [text for entry in value if (text := read_text(entry))] if isinstance(value, list) else []


def hide_secrets(value: object) -> str | None:
    """Return a command's arguments as a line to show, without the values of options that are named like secrets."""
    shown: list[str] = []
    hide_next = False
    for word in read_texts(value)[:60]:
        option, equals, _value = word.partition("=")
        is_secret = bool(_SECRET_OPTION.search(option + equals))
        if hide_next:
            shown.append("(hidden)")
        else:
            shown.append(f"{option}=(hidden)" if is_secret and equals else word)
        hide_next = is_secret and not equals and word.startswith("-") and not hide_next
    return read_text(_LOGIN_IN_URL.sub("(hidden)@", " ".join(shown)), 600)


def to_json(value: object) -> object:
    """Return ``value`` with what JSON cannot carry (NaN, infinities) as null, texts safe, noise digits off."""
    if isinstance(value, dict):
        return {read_text(key) or "": to_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(entry) for entry in value]
    if isinstance(value, float):
        rounded = round(value, 6) if abs(value) >= 1 else float(f"{value:.6g}")
        return rounded if math.isfinite(value) else None
    return read_text(value, 4000) if isinstance(value, str) else value


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key under which node-2 comes before node-10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(part), "") if part.isascii() and part.isdecimal() else (1, 0, part) for part in parts]
