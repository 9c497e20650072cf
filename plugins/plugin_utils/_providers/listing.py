# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a page of a listing, which counts only when it is whole: what a listing lacks is taken to be gone.

Not whole is a success other than 200, an error beside the items, ``success: false``, and a sign of more items than are
shown that the client does not follow.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ...module_utils._http.client import HttpClient
from ...module_utils._http.messages import json_request
from ...module_utils._http.urls import Query
from ...module_utils._model.quantity import parse_finite
from .parsing import JsonObject, as_mapping, error_words, read_items, unexpected_answer

_OK = 200
FRESH = {"Cache-Control": "no-cache"}
_ERRORS = re.compile(r"errors?\Z|error_(code|message)\Z|partial\Z|incomplete\Z|truncated\Z", re.I)
_MORE = re.compile(r"(next|cursor|(page|continuation|after)_?token|has_?(more|next))", re.I)
_PAGES = re.compile(r"(total_?pages|page_?count|pages)\Z", re.I)
_COUNTS = re.compile(r"(total|total_?(count|items|results|instances)|count)\Z", re.I)
# Where APIs put the pages of a listing.
_PAGING = re.compile(r"(pagination|paging|page|page_?info|meta|links|_links)\Z", re.I)


def read_listing(
    http: HttpClient, path: str, key: str, api: str, query: Query = (), follows: t.Collection[str] = ()
) -> tuple[list[JsonObject], Mapping[str, object]]:
    """Return the items of one page of a listing, and its whole answer.

    ``follows`` are the keys with which the client itself reads on or counts. Raises :class:`TransportError` for an
    answer that is not whole.
    """
    answer = http.call(json_request("GET", path, query=query, headers=FRESH))
    if answer.status != _OK:
        raise unexpected_answer(api, f"the listing is not whole: status {answer.status}")
    data = as_mapping(answer.data)
    problem = _find_error(data)
    if problem:
        raise unexpected_answer(api, f"the listing is not whole: {problem}")
    items = read_items(answer.data, key, api)
    beside = {name: value for name, value in data.items() if name != key and name not in follows}
    problem = _find_rest(beside, len(items))
    if problem:
        raise unexpected_answer(api, f"the listing is not whole: {problem}")
    return items, data


def _find_error(data: Mapping[str, object]) -> str:
    if data.get("success") is False:
        words = (_quote(data.get(name)) for name in ("error", "msg", "message", "detail"))
        return f"'success' is false{''.join(words)}"
    told = ((name, value) for name, value in data.items() if _ERRORS.match(name) and value)
    return next((f"it has '{name}'{_quote(value)}" for name, value in told), "")


def _find_rest(beside: Mapping[str, object], shown: int) -> str:
    """Return the key that says that there is more than is shown."""
    for name, value in beside.items():
        count = parse_finite(value, minimum=0)
        if _PAGING.match(name) and isinstance(value, Mapping):
            problem = _find_rest(value, shown)
            if problem:
                return problem
        elif (
            (_MORE.match(name) and value)
            or (_PAGES.match(name) and (count or 0) > 1)
            or (_COUNTS.match(name) and (count or 0) > shown)
        ):
            return f"'{name}' says that there is more"
    return ""


def _quote(value: object) -> str:
    words = error_words(value)
    return f" ({words})" if words else ""
