# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is to blame for slow pairs and nodes, what changed since the last time, and the labels of a verdict."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.verdict import (
    Bandwidth,
    Cause,
    PairProof,
    TransportProof,
    Verdict,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.plan import Suspects
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology import node_labels
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict import drift, pairs

Dict = dict[str, t.Any]
NAMES = ("a", "b", "c", "d")


def rates(**slow: float | None) -> dict[tuple[str, str], float | None]:
    """Every pair of four nodes at 10 GB/s, but those named (``ab=5.0``)."""
    found: dict[tuple[str, str], float | None] = dict.fromkeys(itertools.combinations(NAMES, 2), 10.0)
    return {**found, **{(key[0], key[1]): value for key, value in slow.items()}}


def blamed(found: t.Iterable[Cause]) -> list[tuple[str, str | None]]:
    return [(cause.code, cause.node) for cause in found]


def test_pairs_blame_a_node_or_a_path() -> None:
    assert pairs.pair_causes(rates(), 10.0) == () == pairs.pair_causes({}, None)
    assert blamed(pairs.pair_causes(rates(ac=5.0, bc=5.0, cd=None), 10.0)) == [("slow_node", "c")]
    found = pairs.pair_causes(rates(ab=5.0), None)
    assert blamed(found) == [("slow_path", None)] and "between a and b" in found[0].evidence


def test_halves_blame_a_node_a_path_between_groups_or_one_of_some() -> None:
    found = pairs.search_causes(Suspects(("x",), ((("a", "b"), ("c", "d")),), (("e", "f"),)))
    assert blamed(found) == [("slow_node", "x"), ("slow_path", None), ("slow_path", None)]
    assert "a, b and c, d are well apart and slow together" in found[1].evidence
    assert "at least one of e, f is slow" in found[2].evidence


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({"a": 400.0, "b": 395.0, "c": 200.0}, ["c"]),
        ({"a": 400.0, "b": 100.0}, ["b"]),
        ({"a": 400.0, "b": None, "c": 390.0}, ["b"]),
        ({"a": 100.0}, []),
        ({"a": None, "b": None}, []),
        ({}, []),
    ],
)
def test_nodes_that_are_slower_inside_than_their_peers(inside: dict[str, float | None], expected: list[str]) -> None:
    assert [cause.node for cause in pairs.inside_causes(inside)] == expected


def proof(a: str, b: str, via: str = "eth0") -> PairProof:
    return PairProof(a, b, via, f"{a} to {b}")


def test_pairs_that_a_ring_did_not_use_are_proven_by_their_own_tests() -> None:
    ring = [proof(a, b) for a, b in zip("abcd", "bcda", strict=True)]
    alone = [proof(a, b) for a, b in itertools.combinations(NAMES, 2)]
    found = pairs.with_pairs(ring, alone, rates(ac=5.0))
    assert len(found) == 6 and {frozenset((p.a, p.b)) for p in found} == {frozenset(p) for p in rates()}
    added = {(p.a, p.b): p for p in found if p.evidence.startswith("tested alone: ")}
    assert set(added) == {("a", "c"), ("b", "d")} and added["a", "c"].busbw_gb_s == 5.0
    assert all(p.busbw_gb_s == 10.0 for p in found if (p.a, p.b) != ("a", "c"))


def test_the_table_of_pairs() -> None:
    lines = pairs.matrix({("a", "b"): 10.0, ("a", "c"): None})
    assert lines[0] == "GB/s of each pair:"
    assert [line.split() for line in lines[1:]] == [
        ["1", "2", "3"],
        ["1", "a", ".", "10", "x"],
        ["2", "b", "10", ".", "-"],
        ["3", "c", "x", "-", "."],
    ]
    assert pairs.matrix({("a", "b"): 1.0}) == []
    assert pairs.matrix({(f"n{i}", f"n{i + 1}"): 1.0 for i in range(20)}) == []


def verdict(busbw: float | None = 10.0, **changes: t.Any) -> Verdict:
    values: Dict = {
        "island": "lan",
        "outcome": "pass",
        "lane": "C",
        "transport": TransportProof("tcp", "tcp", None, ()),
        "bandwidth": Bandwidth("all_reduce", 1 << 25, 4, 4, busbw, 10.0),
        "started_at": "2026-11-21T10:00:00+00:00",
    }
    return Verdict(**{**values, **changes})


def line(pair_rates: t.Mapping[tuple[str, str], float | None] | None = None, **changes: t.Any) -> Dict:
    found = tuple(
        dataclasses.replace(proof(a, b), busbw_gb_s=rate)
        for (a, b), rate in (pair_rates if pair_rates is not None else rates()).items()
        if rate is not None
    )
    base = drift.measurement(verdict(transport=TransportProof("tcp", "tcp", None, found)), NAMES, "gloo/torch")
    return {**base, **changes}


def test_nothing_changed_or_nothing_to_compare_with() -> None:
    for history in ([], [line()], [line(), line()], ["text", 1, {}, {"nodes": 3}, {"nodes": ["a"]}]):
        assert drift.drift(line(busbw_gb_s=9.0), t.cast(t.Any, history)) == drift.Drift()


def test_an_island_that_became_slower_than_its_own_history() -> None:
    found = drift.drift(line(busbw_gb_s=8.4), [line(), line(busbw_gb_s=10.4), line(busbw_gb_s=9.8)])
    assert found.changes == ("bandwidth: 8.4 GB/s, 10 before",) and blamed(found.causes) == [("drift", None)]


def test_a_node_all_of_whose_pairs_became_slower() -> None:
    now = line(rates(ac=5.0, bc=5.0, cd=5.0), busbw_gb_s=5.0)
    found = drift.drift(now, [line(), line()])
    assert blamed(found.causes) == [("drift", "c")]
    assert found.changes[0] == "bandwidth: 5 GB/s, 10 before" and "a–c: 5 GB/s, 10 before" in found.changes
    # One pair is a path, and when all became slower no single node is to blame.
    one = drift.drift(line(rates(ac=5.0)), [line()])
    assert one.causes == () and one.changes == ("a–c: 5 GB/s, 10 before",)
    everything = drift.drift(line(dict.fromkeys(rates(), 5.0), busbw_gb_s=5.0), [line()])
    assert blamed(everything.causes) == [("drift", None)]


@pytest.mark.parametrize(
    "changes",
    [{"backend": "nccl/torch"}, {"collective": "all_gather"}, {"size_bytes": 1}, {"outcome": "fail"}, {"nodes": ["a"]}],
)
def test_only_equal_tests_that_were_well_are_the_measure(changes: Dict) -> None:
    found = drift.drift(line(busbw_gb_s=1.0), [line(**changes)])
    assert found.causes == () and not any("bandwidth" in change for change in found.changes)


def test_other_changes_are_told_without_a_cause() -> None:
    found = drift.drift(line(transport="rdma_gdr", lane="A", outcome="warn"), [line()])
    assert found.changes == ("outcome: warn, pass before", "lane: A, C before", "transport: rdma_gdr, tcp before")
    assert found.causes == ()
    assert drift.drift(line(), [line(nodes=["a", "x"])]).changes == ("joined: b, c, d", "left: x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from(sorted(line())))
def test_no_line_of_history_breaks_the_comparison(value: t.Any, key: str) -> None:
    drift.drift(line(), [value, {**line(), key: value}])


def test_labels_of_a_verdict_and_of_none() -> None:
    cause = Cause("slow_node", "x", "y", "a")
    patches = node_labels.node_patches([(verdict(causes=(cause,)), ("a", "b"))], ["b", "gone"], {"a": ("lan", "mesh")})
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
    patches = node_labels.node_patches([(verdict(), ("a", "nowhere"))], ["gone"])
    written, removed = node_labels.node_objects(patches, ["a", "gone"])
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
