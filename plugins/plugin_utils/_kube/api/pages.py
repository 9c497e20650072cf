# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reads ask for and the pages that answer them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ....module_utils._http.messages import decode_json
from .kinds import KubeObject, Resource


class ListPage(t.NamedTuple):
    """What a LIST gave: objects with their apiVersion and kind, and the version a watch goes on from."""

    items: list[KubeObject]
    resource_version: str
    # How many more there are, for a listing that was cut at its first page (see remaining()).
    remaining: int = 0


def decode_object(body: bytes) -> KubeObject | None:
    """Return the object that a body is, None when it is none."""
    try:
        value = decode_json(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def list_items(answer: KubeObject, found: Resource) -> list[KubeObject]:
    """Return the items of a list; the server does not say in each what it is."""
    return [{"apiVersion": found.api_version, "kind": found.kind, **item} for item in answer.get("items") or []]


def remaining_count(meta: KubeObject) -> int:
    """Return how many items follow a page, from its metadata; 1 where the server does not count them.

    It does not where there are selectors (ListMeta.remainingItemCount in the API's reference).
    """
    return int(meta.get("remainingItemCount") or 1) if meta.get("continue") else 0
