# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes and proofs from tests of pairs and of single nodes, and the table of pairs."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.verdict import (
    Bandwidth,
    Cause,
    PairProof,
    TransportResult,
    Verdict,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.suspects import Suspects
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
    assert pairs.find_pair_causes(rates(), 10.0) == () == pairs.find_pair_causes({}, None)
    assert blamed(pairs.find_pair_causes(rates(ac=5.0, bc=5.0, cd=None), 10.0)) == [("slow_node", "c")]
    found = pairs.find_pair_causes(rates(ab=5.0), None)
    assert blamed(found) == [("slow_path", None)] and "between a and b" in found[0].evidence


def test_halves_blame_a_node_a_path_between_groups_or_one_of_some() -> None:
    found = pairs.build_search_causes(Suspects(("x",), ((("a", "b"), ("c", "d")),), (("e", "f"),)))
    assert blamed(found) == [("slow_node", "x"), ("slow_path", None), ("slow_path", None)]
    assert "a, b and c, d are fast alone and slow together" in found[1].evidence
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
    assert [cause.node for cause in pairs.find_inside_causes(inside)] == expected


def proof(a: str, b: str, via: str = "eth0") -> PairProof:
    return PairProof(a, b, via, f"{a} to {b}")


def test_pairs_that_a_ring_did_not_use_are_proven_by_their_own_tests() -> None:
    ring = [proof(a, b) for a, b in zip("abcd", "bcda", strict=True)]
    alone = [proof(a, b) for a, b in itertools.combinations(NAMES, 2)]
    found = pairs.merge_pair_proofs(ring, alone, rates(ac=5.0))
    assert len(found) == 6 and {frozenset((p.a, p.b)) for p in found} == {frozenset(p) for p in rates()}
    added = {(p.a, p.b): p for p in found if p.evidence.startswith("tested alone: ")}
    assert set(added) == {("a", "c"), ("b", "d")} and added["a", "c"].busbw_gb_s == 5.0
    assert all(p.busbw_gb_s == 10.0 for p in found if (p.a, p.b) != ("a", "c"))


def test_the_table_of_pairs() -> None:
    lines = pairs.format_matrix({("a", "b"): 10.0, ("a", "c"): None})
    assert lines[0] == "GB/s of each pair:"
    assert [line.split() for line in lines[1:]] == [
        ["1", "2", "3"],
        ["1", "a", ".", "10", "x"],
        ["2", "b", "10", ".", "-"],
        ["3", "c", "x", "-", "."],
    ]
    assert pairs.format_matrix({("a", "b"): 1.0}) == []
    assert pairs.format_matrix({(f"n{i}", f"n{i + 1}"): 1.0 for i in range(20)}) == []


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


def line(pair_rates: t.Mapping[tuple[str, str], float | None] | None = None, **changes: t.Any) -> Dict:
    found = tuple(
        dataclasses.replace(proof(a, b), busbw_gb_s=rate)
        for (a, b), rate in (pair_rates if pair_rates is not None else rates()).items()
        if rate is not None
    )
    base = drift.build_measurement(verdict(transport=TransportResult("tcp", "tcp", None, found)), NAMES, "gloo/torch")
    return {**base, **changes}
