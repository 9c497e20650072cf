# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as a person reads them. None becomes an en dash, so that a table shows what is not known."""

from __future__ import annotations

import datetime
import math

UNKNOWN = "\N{EN DASH}"
_NBSP = "\N{NO-BREAK SPACE}"


def format_duration(seconds: float | None) -> str:
    """Return a length of time in its two largest units: ``0.4 s``, ``1 min 5 s``, ``2 h 3 min``, ``3 d 4 h``."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f}{_NBSP}s"
    whole = round(seconds)
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // small
            tail = f" {rest}{_NBSP}{small_name}" if rest else ""
            return f"{whole // size}{_NBSP}{name}{tail}"
    return f"{whole}{_NBSP}s"


def format_clock(seconds: float) -> str:
    """Return an elapsed time for an axis: ``0:05``, ``12:30``, ``3:00:00``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def format_time(at: float | None) -> str:
    """Return Unix seconds as a date and time in UTC."""
    if at is None:
        return UNKNOWN
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_figure(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits and thousands separated: ``2.41``, ``51,234``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.{digits - 1}e}"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def format_count(value: int | None) -> str:
    """Return a whole number with thousands separated."""
    return UNKNOWN if value is None else f"{value:,}"


def format_tick(value: float, step: float = 0.0) -> str:
    """Return a number for an axis: ``950``, ``1.5k``, ``20k``, ``3M``; below 1000 all with the decimals of ``step``."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{round(value / limit, 6):g}{unit}"
    if abs(value) < 0.001 and step < 0.0005:
        if not value:
            return "0"
        # As many digits as tell two ticks apart.
        digits = max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step) + 1e-9)) if step else 0
        return f"{value:.{digits}e}".replace("e-0", "e-")
    if 1e-6 <= step < 1000:
        decimals = next(count for count in range(8) if round(step * 10**count, 6) % 1 == 0 or count == 7)
        return f"{value:.{decimals}f}"
    return f"{round(value, 9):g}"


def shorten(text: str, most: int) -> str:
    """Return the beginning of a text: whole sentences where some fit, else whole words."""
    if len(text) <= most:
        return text
    end = max(text.rfind(mark, most // 3, most) for mark in (". ", "; "))
    return text[:end] if end > 0 else text[:most].rsplit(" ", 1)[0] + "\N{HORIZONTAL ELLIPSIS}"


def format_usd(value: float | None) -> str:
    """Return an amount in US dollars; below ten cents with four decimals, since short runs cost little."""
    if value is None:
        return UNKNOWN
    return f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def format_percent(value: float | None) -> str:
    """Return a percentage (0 to 100) without decimals."""
    return UNKNOWN if value is None else f"{value:.0f}{_NBSP}%"


def size(bytes_: int) -> str:
    """Return a file size in decimal units."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if bytes_ >= unit:
            return f"{bytes_ / unit:.1f}{_NBSP}{name}"
    return f"{bytes_}{_NBSP}B"


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a count with its noun: ``1 node``, ``2 nodes``, ``3 losses``."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def join_names(items: list[str], most: int = 4) -> str:
    """Return names as a phrase: ``a, b and c``, or ``a, b, c, d and 12 more``."""
    shown = items if len(items) <= most else [*items[:most], f"{len(items) - most} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
