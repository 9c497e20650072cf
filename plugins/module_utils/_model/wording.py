# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists in messages: a line stays short where hundreds of nodes have the same fault."""

from __future__ import annotations

import typing as t


def name_some(names: t.Iterable[str], most: int = 8, separator: str = ", ") -> str:
    """Return the first names and how many more there are: ``a, b and 12 more``, with ``"; "`` ``a; b; and 12 more``.

    :param most: how many are named at most.
    """
    listed = list(names)
    more = f"{separator.strip(',')}and {len(listed) - most:,} more" if len(listed) > most else ""
    return f"{separator.join(listed[:most])}{more}"
