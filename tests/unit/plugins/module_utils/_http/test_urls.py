# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, queries, proxies, and the pure parts of policy and messages."""

from __future__ import annotations

import contextlib
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.urls import (
    Origin,
    encode_query,
    parse_base_url,
    parse_proxy,
    proxy_for,
    redirect_target,
    route,
)
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError

API = Origin("https", "api.example.com", 443)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://API.example.com/v1/", "https://api.example.com/v1"),
        ("https://api.example.com:443", "https://api.example.com"),
        ("https://api.example.com:8443/a/b", "https://api.example.com:8443/a/b"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("http://localhost/v1", "http://localhost/v1"),
        ("https://[fd7a:115c:a1e0::1]:8080", "https://[fd7a:115c:a1e0::1]:8080"),
        ("http://[::1]:80/x", "http://[::1]/x"),
    ],
)
def test_base_url(url: str, shown: str) -> None:
    assert str(parse_base_url(url, "api_url")) == shown


@pytest.mark.parametrize(
    "url",
    ["", " ", "api.example.com", "ftp://x/", "https://", "https://a b/", "https://x:99999/", "https://x:y/",
     "https://user:hunter22@x/", "https://x/?token=hunter22", "https://x/#a", "http://10.0.0.1/", "https://[::1/",
     "https://x\r\nEvil: 1/", "https://ex\u00e4mple.com/"],
)  # fmt: skip
def test_base_url_refused_without_echo(url: str) -> None:
    with pytest.raises(InputError, match=r"^api_url: ") as caught:
        parse_base_url(url, "api_url")
    assert "hunter22" not in str(caught.value)


def test_plain_http_on_request() -> None:
    assert parse_base_url("http://10.0.0.1:8080", "api_url", allow_http=True).origin.port == 8080


@given(st.text(max_size=60))
def test_base_url_never_crashes(text: str) -> None:
    for url in (text, "https://" + text):
        with contextlib.suppress(InputError):
            parse_base_url(url, "api_url")


@given(st.text(min_size=1).filter(lambda value: bool(value.strip("."))))
def test_route_keeps_a_value_in_its_place(value: str) -> None:
    path = route("/instances/{id}/ssh", id=value.encode("utf-8", "replace").decode())
    assert path.count("/") == 3 and path.isascii() and " " not in path


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_route_refuses_dots(value: str) -> None:
    with pytest.raises(InputError):
        route("/instances/{id}", id=value)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))))
def test_query_round_trip(pairs: list[tuple[str, str]]) -> None:
    text = encode_query(pairs)
    assert urllib.parse.parse_qsl(text[1:], keep_blank_values=True) == pairs
    assert "\n" not in text


@given(st.text(max_size=80))
def test_redirects_never_leave_the_origin(location: str) -> None:
    found = redirect_target(API, "/v1/nodes", location)
    if found is not None:
        joined = urllib.parse.urlsplit(urllib.parse.urljoin("https://api.example.com/v1/nodes", location))
        assert (joined.scheme, joined.hostname, joined.port or 443) == ("https", "api.example.com", 443)
        assert found[0].startswith("/")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"https_proxy": "http://p:3128"}, ("p", 3128)),
        ({"HTTPS_PROXY": "p:3128"}, ("p", 3128)),
        ({"all_proxy": "http://p:1"}, ("p", 1)),
        ({"http_proxy": "http://p:1"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "example.com"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": ".example.com, x"}, None),
        ({"https_proxy": "http://p:1", "NO_PROXY": "*"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "ample.com"}, ("p", 1)),
        ({"https_proxy": "http://p:1", "no_proxy": ""}, ("p", 1)),
    ],
)
def test_proxy_from_the_environment(environ: dict[str, str], expected: tuple[str, int] | None) -> None:
    found = proxy_for(API, "env", environ)
    assert (found and (found.host, found.port)) == expected


def test_proxy_other_ways() -> None:
    environ = {"http_proxy": "http://p:1", "https_proxy": "http://p:1"}
    assert proxy_for(API, "none", environ) is None
    assert proxy_for(Origin("http", "127.0.0.1", 80), "env", environ) is None
    assert proxy_for(Origin("http", "x", 80), "env", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}) is None
    with pytest.raises(InputError, match="http:// proxy"):
        parse_proxy("https://user:hunter22@p:1", "proxy")
    assert "hunter22" not in repr(parse_proxy("http://user:hunter22@p:1", "proxy"))
