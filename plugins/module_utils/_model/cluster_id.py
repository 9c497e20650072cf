# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster something is of: the uid of its namespace kube-system, else, where that may not be read, its CA.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

_BY_CA: t.Final = "ca:"


def name_by_authority(digest: str) -> str:
    """Return the id of a cluster by the SHA-256 of its CA, empty for one without a CA of its own."""
    return f"{_BY_CA}{digest}" if digest else ""


def is_other_cluster(known: str | None, seen: str | None) -> bool:
    """Return whether two ids are of different clusters. One that is unknown, or of the other kind, is of any."""
    if not known or not seen or known.startswith(_BY_CA) != seen.startswith(_BY_CA):
        return False
    return known != seen
