# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of foreign JSON documents and texts: finite numbers, mappings, short texts. Nothing here raises."""

from __future__ import annotations

import typing as t

from ....module_utils._model.quantity import parse_finite

MAX_NUMBER_CHARS = 40


def finite_number(value: object, limit: float = 2**63) -> float | None:
    """Return a finite number from 0 to below ``limit``, given as a number or as text; else None."""
    too_long = len(str(value)[:64]) > MAX_NUMBER_CHARS
    return None if too_long else parse_finite(value, minimum=0, below=limit)


def whole_number(value: object) -> int | None:
    """Return a number from 0 as an int, its fraction cut off; else None."""
    number = finite_number(value)
    return None if number is None else int(number)


def as_mapping(value: object) -> t.Mapping[str, object]:
    """Return a JSON object; empty for every other value."""
    return value if isinstance(value, dict) else {}


def as_items(value: object) -> t.Sequence[object]:
    """Return a JSON array; empty for every other value."""
    return value if isinstance(value, list) else ()
