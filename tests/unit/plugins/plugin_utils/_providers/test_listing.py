# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page of a listing is whole, or none."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.client import HttpClient
from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.listing import read_listing

ITEM = '{"id": "i-1"}'


class Wire:
    """Answers every request the same; keeps the last one."""

    def __init__(self, status: int, body: str) -> None:
        self._response = HttpResponse(status, {"content-type": "application/json"}, body.encode())
        self.request: t.Any = None

    def __call__(self, _origin: Origin, request: HttpRequest, _deadline: Deadline) -> HttpResponse:
        self.request = request
        return self._response


def read(status: int, body: str, *follows: str) -> tuple[list[t.Any], Wire]:
    wire = Wire(status, body)
    http = HttpClient("https://api.example.com/v1", exchange=wire)
    return read_listing(http, "/machines", "machines", "Example", (), follows)[0], wire


@pytest.mark.parametrize(
    "beside",
    [
        "",
        ', "errors": []',
        ', "error": null',
        ', "success": true',
        ', "next": null',
        ', "next_page_token": ""',
        ', "total": 1',
        ', "page": 1, "per_page": 25, "total_pages": 1',
        ', "pagination": {"nextCursor": null, "hasNextPage": false, "total": 1}',
        ', "meta": {"request": "x"}',
        ', "label_counts": {"a": 3}',
    ],
)
def test_a_whole_page_is_read_fresh(beside: str) -> None:
    items, wire = read(200, f'{{"machines": [{ITEM}]{beside}}}')
    assert [item["id"] for item in items] == ["i-1"]
    assert wire.request.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    ("status", "beside", "words"),
    [
        (206, "", "status 206"),
        (203, "", "status 203"),
        (200, ', "errors": [{"message": "region EU is unavailable"}]', "errors.*region EU is unavailable"),
        (200, ', "error": {"code": "x", "message": "try later"}', "error.*try later"),
        (200, ', "error": "try later"', "error.*try later"),
        (200, ', "success": false', "success"),
        (200, ', "success": false, "msg": "busy"', "success.*busy"),
        (200, ', "truncated": true', "truncated"),
        (200, ', "page_token": "abc"', "page_token"),
        (200, ', "next_page_token": "abc"', "next_page_token"),
        (200, ', "next": "https://api.example.com/v1/machines?page=2"', "next"),
        (200, ', "has_more": true', "has_more"),
        (200, ', "total": 2', "total"),
        (200, ', "total_count": "26"', "total_count"),
        (200, ', "total_pages": 3', "total_pages"),
        (200, ', "meta": {"next_cursor": "abc"}', "next_cursor"),
        (200, ', "pagination": {"total": 40}', "total"),
    ],
)
def test_a_page_that_is_not_whole_is_no_listing(status: int, beside: str, words: str) -> None:
    with pytest.raises(TransportError, match=f"the listing is not whole: .*{words}"):
        read(status, f'{{"machines": [{ITEM}]{beside}}}')


def test_what_the_client_follows_itself_is_left_to_it() -> None:
    items, _wire = read(200, f'{{"machines": [{ITEM}], "next_token": "abc"}}', "next_token")
    assert len(items) == 1
    with pytest.raises(TransportError, match="no list 'machines'"):
        read(200, '{"other": []}')
