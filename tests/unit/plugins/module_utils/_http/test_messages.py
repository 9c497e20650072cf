# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests and responses as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.messages import (
    HttpRequest,
    HttpResponse,
    check_headers,
    decode_json,
    json_request,
)
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError


@given(st.binary(max_size=200))
def test_decode_json_raises_only_value_error(data: bytes) -> None:
    try:
        decode_json(data)
    except ValueError as exc:
        assert str(exc) == "not JSON"


def test_json_request_forms() -> None:
    form = json_request("POST", "/oauth/token", form={"a": "b c"})
    assert form.body == b"a=b+c" and form.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert json_request("GET", "/x").body is None
    with pytest.raises(ValueError, match="JSON"):
        json_request("POST", "/x", body=float("nan"))


@pytest.mark.parametrize("headers", [{"X": "a\r\nb"}, {"X\n": "a"}, {"X": "\u00e9"}, {"": "a"}, {"X": "a\0"}])
def test_bad_headers(headers: dict[str, str]) -> None:
    with pytest.raises(InputError):
        check_headers(headers)


def test_repeatable_by_method_unless_said_otherwise() -> None:
    assert HttpRequest("PUT", "/x").repeatable and not HttpRequest("PUT", "/x", idempotent=False).repeatable
    assert not HttpRequest("POST", "/x").repeatable and HttpRequest("POST", "/x", idempotent=True).repeatable


def test_response_shows_only_clean_names() -> None:
    response = HttpResponse(500, {"cf-ray": "8a<script>", "content-type": "Text/HTML;x"}, b"secret body")
    assert response.request_id() == "8ascript" and response.content_type() == "text/html"
    assert "secret" not in repr(response)
