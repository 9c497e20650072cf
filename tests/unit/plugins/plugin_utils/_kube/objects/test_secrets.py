# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets: values in both forms, none in any output, and a hash that changes with them."""

from __future__ import annotations

import base64
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.secrets import build_secret, keyed_hash


def test_values_are_encoded_and_never_shown() -> None:
    encoded = base64.b64encode(b"second-hidden-value").decode()
    secret = build_secret({"name": "s"}, "Opaque", {"a": "first-hidden-value", "n": 7}, {"b": encoded})
    assert {key: base64.b64decode(text) for key, text in secret["data"].items()} == {
        "a": b"first-hidden-value",
        "n": b"7",
        "b": b"second-hidden-value",
    }
    assert (secret["type"], secret["metadata"]) == ("Opaque", {"name": "s"})
    assert scrub("first-hidden-value second-hidden-value") == "******** ********"


@pytest.mark.parametrize(
    ("texts", "encoded", "message"),
    [
        ({"a": ["x"]}, {}, "data.a: must be text"),
        ({"a": True}, {}, "data.a: must be text"),
        ({}, {"b": "%%%"}, "data_base64.b: is not base64"),
    ],
)
def test_a_wrong_value_is_named_and_not_shown(texts: dict[str, t.Any], encoded: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build_secret({"name": "s"}, "Opaque", texts, encoded)
    assert "%%%" not in str(caught.value)


def test_the_hash_changes_with_values_and_with_the_secret() -> None:
    live: t.Any = {"metadata": {"uid": "u-1"}}
    other: t.Any = {"metadata": {"uid": "u-2"}}
    first = keyed_hash(live, {"a": "eA=="})
    assert first == keyed_hash(live, {"a": "eA=="}) and len(first) == 16
    assert len({first, keyed_hash(live, {"a": "eQ=="}), keyed_hash(other, {"a": "eA=="})}) == 3
