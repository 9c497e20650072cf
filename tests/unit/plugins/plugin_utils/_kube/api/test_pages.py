# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that answer what was asked together; an answer to something else is none."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import BUILT_IN, Resource
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pages import Listing, Question, first_page

Object = dict[str, t.Any]
MAPS = BUILT_IN["v1", "ConfigMap"]
OWN = Resource("example.com", "v1", "Thing", "things", True)


def ok(value: t.Any) -> HttpResponse:
    return HttpResponse(200, {}, json.dumps(value).encode())


def a_map(name: str = "a", kind: str = "ConfigMap") -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def test_a_page_says_what_each_item_is_and_how_many_more_there_are() -> None:
    meta = {"resourceVersion": "7", "continue": "x", "remainingItemCount": 3}
    found = first_page(Question(MAPS, "n"), ok({"kind": "ConfigMapList", "metadata": meta, "items": [{"data": {}}]}))
    assert found == Listing([{"apiVersion": "v1", "kind": "ConfigMap", "data": {}}], "7", 3)
    # With selectors a server does not count.
    meta = {"resourceVersion": "7", "continue": "x"}
    assert first_page(Question(MAPS, "n"), ok({"kind": "ConfigMapList", "metadata": meta})) == Listing([], "7", 1)
    whole = {"kind": "ConfigMapList", "metadata": {"resourceVersion": "7", "remainingItemCount": 3}, "items": None}
    assert first_page(Question(MAPS, "n"), ok(whole)) == Listing([], "7", 0)
    assert first_page(Question(OWN, "n"), ok({"kind": "Bunch", "items": []})) == Listing([], "", 0)


def test_one_object_that_is_there_or_not() -> None:
    asked = Question(MAPS, "n", "a")
    assert first_page(asked, ok(a_map())) == Listing([a_map()], "")
    assert first_page(asked, KubeError("ConfigMap n/a", "not found", status=404)) == Listing([], "")


@pytest.mark.parametrize("asked", [Question(MAPS, "n", "a"), Question(MAPS, "n")])
@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal_stays_one(asked: Question, status: int) -> None:
    refusal = KubeError("ConfigMap", "no", status=status)
    found = first_page(asked, refusal)
    assert found is refusal or (asked.name and status == 404)


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        (Question(MAPS, "n", "a"), a_map("b")),
        (Question(MAPS, "n", "a"), a_map(kind="Secret")),
        (Question(MAPS, "n", "a"), {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}}),
        (Question(MAPS, "n", "a"), {"kind": "ConfigMap", "metadata": None}),
        (Question(MAPS, "n"), {"kind": "SecretList", "items": []}),
        (Question(MAPS, "n"), a_map()),
        (Question(MAPS, "n"), ["text"]),
    ],
)
def test_the_answer_to_something_else_is_none(asked: Question, value: t.Any) -> None:
    assert first_page(asked, ok(value)) is None
    assert first_page(asked, None) is None
    assert first_page(asked, HttpResponse(200, {}, b"<html>Log in</html>")) is None
