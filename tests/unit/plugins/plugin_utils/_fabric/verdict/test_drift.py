# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of an island compared with its own history."""

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
    TransportResult,
    Verdict,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict import drift

Dict = dict[str, t.Any]


NAMES = ("a", "b", "c", "d")


def rates(**slow: float | None) -> dict[tuple[str, str], float | None]:
    """Every pair of four nodes at 10 GB/s, but those named (``ab=5.0``)."""
    found: dict[tuple[str, str], float | None] = dict.fromkeys(itertools.combinations(NAMES, 2), 10.0)
    return {**found, **{(key[0], key[1]): value for key, value in slow.items()}}


def blamed(found: t.Iterable[Cause]) -> list[tuple[str, str | None]]:
    return [(cause.code, cause.node) for cause in found]


def proof(a: str, b: str, via: str = "eth0") -> PairProof:
    return PairProof(a, b, via, f"{a} to {b}")


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
    """Return a line of the history as it is in its file."""
    found = tuple(
        dataclasses.replace(proof(a, b), busbw_gb_s=rate)
        for (a, b), rate in (pair_rates if pair_rates is not None else rates()).items()
        if rate is not None
    )
    base = drift.build_measurement(verdict(transport=TransportResult("tcp", "tcp", None, found)), NAMES, "gloo/torch")
    return {**base.to_dict(), **changes}


def compare(now: Dict, history: t.Iterable[object]) -> drift.Drift:
    (measurement,) = drift.read_measurements([now])
    return drift.compare_with_history(measurement, drift.read_measurements(history))


def test_a_line_is_read_as_it_was_written() -> None:
    (measurement,) = drift.read_measurements([line()])
    assert measurement.to_dict() == line() and len(measurement.pairs) == 6


def test_nothing_changed_or_nothing_to_compare_with() -> None:
    for history in ([], [line()], [line(), line()], ["text", 1, {}, {"nodes": 3}, {"nodes": ["a"]}]):
        assert compare(line(busbw_gb_s=9.0), history) == drift.Drift()


def test_an_island_that_became_slower_than_its_own_history() -> None:
    found = compare(line(busbw_gb_s=8.4), [line(), line(busbw_gb_s=10.4), line(busbw_gb_s=9.8)])
    assert found.changes == ("bandwidth: 8.4 GB/s, 10 before",) and blamed(found.causes) == [("drift", None)]


def test_a_node_all_of_whose_pairs_became_slower() -> None:
    now = line(rates(ac=5.0, bc=5.0, cd=5.0), busbw_gb_s=5.0)
    found = compare(now, [line(), line()])
    assert blamed(found.causes) == [("drift", "c")]
    assert found.changes[0] == "bandwidth: 5 GB/s, 10 before" and "a–c: 5 GB/s, 10 before" in found.changes
    # One pair is a path, and when all became slower no single node is to blame.
    one = compare(line(rates(ac=5.0)), [line()])
    assert one.causes == () and one.changes == ("a–c: 5 GB/s, 10 before",)
    everything = compare(line(dict.fromkeys(rates(), 5.0), busbw_gb_s=5.0), [line()])
    assert blamed(everything.causes) == [("drift", None)]


@pytest.mark.parametrize(
    "changes",
    [{"backend": "nccl/torch"}, {"collective": "all_gather"}, {"size_bytes": 1}, {"outcome": "fail"}, {"nodes": ["a"]}],
)
def test_only_equal_tests_that_were_well_are_the_measure(changes: Dict) -> None:
    found = compare(line(busbw_gb_s=1.0), [line(**changes)])
    assert found.causes == () and not any("bandwidth" in change for change in found.changes)


def test_other_changes_are_told_without_a_cause() -> None:
    found = compare(line(transport="rdma_gdr", lane="A", outcome="warn"), [line()])
    assert found.changes == ("outcome: warn, pass before", "lane: A, C before", "transport: rdma_gdr, tcp before")
    assert found.causes == ()
    assert compare(line(), [line(nodes=["a", "x"])]).changes == ("joined: b, c, d", "left: x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from(sorted(line())))
def test_no_line_of_history_breaks_the_comparison(value: t.Any, key: str) -> None:
    compare(line(), [value, {**line(), key: value}])
