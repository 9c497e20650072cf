# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of a LIST: what each item is, how many follow, and bodies that are not JSON objects."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api import pages
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import BUILT_IN

MAPS = BUILT_IN["v1", "ConfigMap"]


def test_a_page_says_what_each_item_is() -> None:
    """A server names the kind once, in the list."""
    assert pages.list_items({"items": [{"data": {}}]}, MAPS) == [{"apiVersion": "v1", "kind": "ConfigMap", "data": {}}]
    own = {"apiVersion": "v2", "kind": "Other"}
    assert pages.list_items({"items": [own]}, MAPS) == [own], "an item that names its kind keeps it"


@pytest.mark.parametrize("answer", [{"items": None}, {}])
def test_a_list_without_items_is_empty(answer: dict[str, t.Any]) -> None:
    assert pages.list_items(answer, MAPS) == []


@pytest.mark.parametrize(
    ("meta", "number"),
    [
        ({"continue": "x", "remainingItemCount": 3}, 3),
        # With selectors a server does not count.
        ({"continue": "x"}, 1),
        ({"remainingItemCount": 3}, 0),
        ({}, 0),
    ],
)
def test_how_many_items_follow_a_page(meta: dict[str, t.Any], number: int) -> None:
    assert pages.remaining_count(meta) == number


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b'["text"]', b"", b"\xff"])
def test_a_body_that_is_no_object_is_none(body: bytes) -> None:
    assert pages.decode_object(body) is None
    assert pages.decode_object(b'{"kind": "Status"}') == {"kind": "Status"}
