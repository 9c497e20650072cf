# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the answers of an API server: one object, or a page of a list."""

from __future__ import annotations

import typing as t

from ....module_utils._http.messages import decode_json
from .kinds import KubeObject, ListMeta, ObjectList, Resource


class ListPage(t.NamedTuple):
    """The objects of a LIST with their apiVersion and kind, and the version from which a watch continues."""

    items: list[KubeObject]
    resource_version: str
    # How many more there are, for a list that was cut after its first page (see remaining_count()).
    remaining: int = 0


def decode_object(body: bytes) -> KubeObject | None:
    """Return the JSON object that a body holds, None when it holds something else."""
    try:
        value = decode_json(body)
    except ValueError:
        return None
    return t.cast("KubeObject", value) if isinstance(value, dict) else None


def list_items(page: ObjectList, resource: Resource) -> list[KubeObject]:
    """Return the items of a page with their apiVersion and kind, which the server names once for the whole list."""
    typed = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [t.cast("KubeObject", {**typed, **item}) for item in page.get("items") or []]


def remaining_count(meta: ListMeta) -> int:
    """Return how many items follow a page, from its metadata; 1 where the server does not count them.

    It does not where there are selectors (ListMeta.remainingItemCount in the API's reference).
    """
    return int(meta.get("remainingItemCount") or 1) if meta.get("continue") else 0
