# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and annotations of nodes for a verdict and for none."""

from __future__ import annotations

import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.verdict import (
    Bandwidth,
    Cause,
    TransportResult,
    Verdict,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology import node_labels

Dict = dict[str, t.Any]


def verdict(busbw: float | None = 10.0, **changes: t.Any) -> Verdict:
    values: Dict = {
        "island": "lan",
        "outcome": "pass",
        "lane": "C",
        "transport": TransportResult("tcp", "tcp", None, ()),
        "bandwidth": Bandwidth("all_reduce", 1 << 25, 4, 4, busbw, 10.0),
        "started_at": "2026-11-21T10:00:00+00:00",
    }
    return Verdict(**{**values, **changes})


def test_labels_of_a_verdict_and_of_none() -> None:
    cause = Cause("slow_node", "x", "y", "a")
    patches = node_labels.build_node_patches(
        [(verdict(causes=(cause,)), ("a", "b"))], ["b", "gone"], {"a": ("lan", "mesh")}
    )
    assert set(patches) == {"a", "b", "gone"}
    assert patches["a"]["metadata"]["annotations"] == patches["b"]["metadata"]["annotations"]
    unknown: dict[str, str | None] = dict.fromkeys(
        f"muster.training/network-{kind}" for kind in ("mesh", "lan", "public")
    )
    about = {"muster.training/island": "lan", "muster.training/lane": "C", "muster.training/fabric": "pass"}
    known = {"muster.training/network-mesh": "true", "muster.training/network-lan": "true"}
    assert patches["a"]["metadata"]["labels"] == {**about, **unknown, **known}
    assert patches["b"]["metadata"]["labels"] == {**about, **unknown}
    told = patches["a"]["metadata"]["annotations"]
    assert told["muster.training/fabric-busbw-gb-s"] == "10" and told["muster.training/fabric-cause"] == "slow_node"
    assert told["muster.training/fabric-verified-at"] == "2026-11-21T10:00:00+00:00"
    gone = patches["gone"]["metadata"]
    assert set(gone["labels"].values()) | set(gone["annotations"].values()) == {None}
    assert set(gone["labels"]) == set(patches["a"]["metadata"]["labels"])
    assert set(gone["annotations"]) == set(told)


def test_labels_as_objects_for_apply_hold_no_nulls_and_make_no_nodes() -> None:
    patches = node_labels.build_node_patches([(verdict(), ("a", "nowhere"))], ["gone"])
    written, removed = node_labels.build_node_objects(patches, ["a", "gone"])
    assert written["metadata"]["name"] == "a" and written["metadata"]["labels"]["muster.training/fabric"]
    assert None not in written["metadata"]["labels"].values()
    assert None not in written["metadata"]["annotations"].values()
    # Applying nothing gives up what was there.
    assert removed == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gone"}}


@given(st.text(max_size=100))
def test_every_text_becomes_a_valid_label_or_none(text: str) -> None:
    found = node_labels.label_value(text)
    assert (found is None) == (text == "")
    if found is not None:
        assert len(found) <= 63 and node_labels._VALID.fullmatch(found)


@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_different_names_stay_different(first: str, second: str) -> None:
    assert (node_labels.label_value(first) == node_labels.label_value(second)) == (first == second)
