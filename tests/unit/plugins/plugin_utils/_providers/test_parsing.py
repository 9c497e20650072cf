# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading provider answers: an odd shape is an error, an odd value is unknown."""

from __future__ import annotations

import itertools
import json
import typing as t

import pytest
from hypothesis import given

from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers import parsing
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave.client import (
    CoreweaveClient,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.client import LambdaClient
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.client import RunpodClient
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform.client import ShadeformClient
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.client import (
    TailscaleClient,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.client import VastClient
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import access
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import json_values

LISTS: list[tuple[str, str, t.Callable[[ProviderConnection], t.Any]]] = [
    ("/api/v1/instances", "data", lambda a: LambdaClient(a).instances()),
    ("/v2/pods", "pods", lambda a: RunpodClient(a).list_pods()),
    ("/api/v1/instances/", "instances", lambda a: VastClient(a).instances()),
    ("/v1/instances", "instances", lambda a: ShadeformClient(a).instances()),
    ("/v1beta1/cks/clusters", "items", lambda a: CoreweaveClient(a).list_clusters()),
    ("/api/v2/tailnet/-/devices", "devices", lambda a: TailscaleClient(a).devices()),
]


@pytest.mark.parametrize(("path", "key", "read"), LISTS, ids=[path for path, _key, _read in LISTS])
@pytest.mark.parametrize(
    "shape", ["nothing", "null", "list", "text", "wrapped null", "numbers", "no id", "html", "cut"]
)
def test_another_shape_is_an_error_and_never_an_empty_account(
    path: str, key: str, read: t.Callable[[ProviderConnection], t.Any], shape: str
) -> None:
    answers: dict[str, t.Any] = {
        "nothing": b"", "null": b"null", "list": b"[]", "text": b'"x"',
        "wrapped null": json.dumps({key: None}).encode(),
        "numbers": json.dumps({key: [1, 2]}).encode(), "no id": json.dumps({key: [{"name": "x"}]}).encode(),
        "html": b"<!doctype html>", "cut": json.dumps({key: []}).encode()[:-2],
    }  # fmt: skip
    calls = [Call("GET", path, raw=answers[shape])]
    if path == "/v1/instances" and shape == "no id":
        calls.append(Call("GET", "/v1/clusters", answer={"clusters": []}))
    with Script(*calls) as script, pytest.raises(TransportError, match="unexpected answer"):
        read(access(script))


@given(json_values)
def test_readers_never_raise(value: t.Any) -> None:
    number, whole = parsing.number(value), parsing.whole(value)
    assert number is None or number >= 0
    assert whole is None or whole == number
    assert parsing.text(value) != ""
    for reader in (parsing.flag, parsing.as_mapping, parsing.texts, parsing.objects, parsing.moment, parsing.epoch):
        reader(value)


def pages_of(*pages: list[str]) -> t.Callable[[str | None], tuple[list[dict[str, object]], str | None]]:
    """Return a fetch of pages with these ids, whose last page leads to itself under another cursor."""
    number = itertools.count(1)

    def fetch(cursor: str | None) -> tuple[list[dict[str, object]], str | None]:
        page = pages[min(int(cursor or 0), len(pages) - 1)]
        return [{"id": key} for key in page], str(next(number))

    return fetch


def test_pages_without_anything_new_are_an_error() -> None:
    with pytest.raises(TransportError, match="without anything new"):
        parsing.read_pages(pages_of(["a"], ["b"]), "X", Deadline(FakeClock(), 60.0))


def test_a_listing_has_one_deadline_for_all_its_pages() -> None:
    clock = FakeClock()
    number = itertools.count()

    def fetch(_cursor: str | None) -> tuple[list[dict[str, object]], str | None]:
        clock.sleep(20.0)
        return [{"id": str(next(number))}], str(next(number))

    with pytest.raises(TransportError, match="not complete in time"):
        parsing.read_pages(fetch, "X", Deadline(clock, 60.0))
    assert next(number) <= 8


def test_numbers_as_text() -> None:
    assert (parsing.number("1.5"), parsing.whole("8"), parsing.whole(8.5), parsing.number(True)) == (1.5, 8, None, None)
    assert parsing.number("nan") is None and parsing.number(-1) is None and parsing.number(10**400) is None


def test_a_price_of_zero_is_not_known() -> None:
    assert [parsing.positive(value) for value in (0, 0.0, "0", -1, None, "2.99")] == [None] * 5 + [2.99]


@pytest.mark.parametrize("total", [None, 1, 2, "x"])
def test_a_listing_that_counts_no_more_than_it_shows_is_whole(total: object) -> None:
    parsing.check_count(["a", "b"], total, "X")


def test_a_listing_that_counts_more_than_it_shows_is_an_error() -> None:
    with pytest.raises(TransportError, match="shows 2 of 3"):
        parsing.check_count(["a", "b"], 3, "X")
