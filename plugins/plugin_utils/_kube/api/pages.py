# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reads ask for and the pages that answer them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ....module_utils._http.messages import HttpResponse, decode_json
from .errors import KubeError
from .kinds import Object, Resource


class Listing(t.NamedTuple):
    """What a LIST gave: objects with their apiVersion and kind, and the version a watch goes on from."""

    items: list[Object]
    resource_version: str
    # How many more there are, for a listing that was cut at its first page (see remaining()).
    remaining: int = 0


class Question(t.NamedTuple):
    """What ``Client.read_together`` asks for: one object, or without ``name`` those with the ``labels``."""

    resource: Resource
    namespace: str | None
    name: str = ""
    labels: str = ""


def decoded(body: bytes) -> Object | None:
    """Return the object that a body is, None when it is none."""
    try:
        value = decode_json(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_of(value: Object, kind: str, name: str, namespace: str | None) -> bool:
    """Return whether an answer is about this object: what stands between may mix up requests that wait together.

    ``namespace`` None: whichever it is.
    """
    meta = value.get("metadata")
    if value.get("kind") != kind or not isinstance(meta, dict) or meta.get("name") != name:
        return False
    return not namespace or meta.get("namespace") in (namespace, None)


def items(answer: Object, found: Resource) -> list[Object]:
    """Return the items of a list; the server does not say in each what it is."""
    return [{"apiVersion": found.api_version, "kind": found.kind, **item} for item in answer.get("items") or []]


def first_page(asked: Question, answer: HttpResponse | KubeError | None) -> Listing | KubeError | None:
    """Return the answer to a question; None when there was none that can be understood."""
    if isinstance(answer, KubeError):
        return Listing([], "") if asked.name and answer.status == 404 else answer
    value = decoded(answer.body) if answer else None
    if value is None:
        return None
    if asked.name:
        return Listing([value], "") if is_of(value, asked.resource.kind, asked.name, asked.namespace) else None
    if asked.resource.built_in and value.get("kind") != f"{asked.resource.kind}List":
        return None
    meta = value.get("metadata") or {}
    return Listing(items(value, asked.resource), str(meta.get("resourceVersion") or ""), remaining(meta))


def remaining(meta: Object) -> int:
    """Return how many items follow a page, from its metadata; 1 where the server does not count them.

    It does not where there are selectors (ListMeta.remainingItemCount in the API's reference).
    """
    return int(meta.get("remainingItemCount") or 1) if meta.get("continue") else 0
