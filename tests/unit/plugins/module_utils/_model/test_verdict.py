# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict as a value: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.verdict import (
    OUTCOMES,
    Bandwidth,
    Cause,
    PairProof,
    Ranks,
    SlowestPair,
    TransportResult,
    Verdict,
    VerdictChecks,
    exit_code,
    worst_outcome,
)

FULL = Verdict(
    island="rack-1",
    outcome="fail",
    lane="B",
    transport=TransportResult("rdma_gdr", "rdma_no_gdr", "nccl_log", (PairProof("a", "b", "IB", "x:1", False, 12.5),)),
    bandwidth=Bandwidth("all_reduce", 1 << 30, 16, 2, 40.0, 46.0, 0.87, 0.85, 0.7, "computed", "RING"),
    wrong_values=0,
    ranks=Ranks(16, 15, (3,)),
    causes=(Cause("ranks_missing", "x:1: y", "do"), Cause("silent_tcp", "x:2: y", "do", "a")),
    slowest_pair=SlowestPair("a", "b", 12.5),
    started_at="2026-11-21T10:00:00Z",
    duration_s=3.5,
    exit_code=1,
    checks=VerdictChecks("warn", "pass", "pass", "fail"),
    reasons=("attendance: 15 of 16 ranks took part",),
)
CONTRACT = {
    "island": str,
    "outcome": str,
    "lane": str,
    "transport": {"expected", "verdict", "evidence_kind", "pairs"},
    "bandwidth": {
        *("collective", "size_bytes", "ranks", "nodes", "busbw_gb_s", "expected_gb_s"),
        *("ratio", "gate_pass", "gate_fail", "expectation_source"),
    },
    "wrong_values": int,
    "ranks": {"expected", "seen", "missing"},
    "causes": list,
    "slowest_pair": dict,
    "started_at": str,
    "duration_s": float,
    "exit_code": int,
}


def test_the_names_of_the_contract() -> None:
    value = FULL.to_dict()
    assert CONTRACT.keys() <= value.keys()
    for name, keys in CONTRACT.items():
        if isinstance(keys, set):
            assert keys <= value[name].keys()
    assert {"a", "b", "via", "evidence"} <= value["transport"]["pairs"][0].keys()
    assert set(value["causes"][0]) == {"code", "evidence", "fix"} and value["causes"][1]["node"] == "a"


def test_what_is_written_is_read_back() -> None:
    assert Verdict.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL
    least = Verdict("x", "unproven")
    assert Verdict.from_dict({"island": "x", "outcome": "unproven"}) == least == Verdict.from_dict(least.to_dict())


def test_fields_of_a_newer_writer_are_skipped() -> None:
    value = FULL.to_dict() | {"news": 1}
    value["transport"]["news"] = 2
    assert Verdict.from_dict(value) == FULL


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"outcome": "great"}, "fabric.outcome"),
        ({"island": None}, "fabric.island"),
        ({"lane": "F"}, "fabric.lane"),
        ({"transport": {"verdict": "fast"}}, "fabric.transport.verdict"),
        ({"transport": {"pairs": [{"a": "x"}]}}, "fabric.transport.pairs[0].b"),
        ({"bandwidth": {"busbw_gb_s": -1}}, "fabric.bandwidth.busbw_gb_s"),
        ({"bandwidth": {"busbw_gb_s": float("nan")}}, "fabric.bandwidth.busbw_gb_s"),
        ({"ranks": {"missing": [-1]}}, "fabric.ranks.missing[0]"),
        ({"causes": {}}, "fabric.causes"),
        ({"exit_code": 3}, "fabric.exit_code"),
        ({"wrong_values": "many"}, "fabric.wrong_values"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, t.Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        Verdict.from_dict(FULL.to_dict() | change)
    assert caught.value.option == path and "\n" not in str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted(FULL.to_dict())), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(anything, st.sampled_from(sorted(FULL.to_dict())))
def test_no_value_breaks_the_reader(value: t.Any, key: str) -> None:
    for document in (value, FULL.to_dict() | {key: value}):
        try:
            found = Verdict.from_dict(document)
        except InputError:
            continue
        assert Verdict.from_dict(found.to_dict()) == found


def test_a_number_of_too_many_digits() -> None:
    with pytest.raises(InputError):
        Verdict.from_dict(FULL.to_dict() | {"duration_s": 10**400})


def test_unproven_weighs_more_than_a_warning() -> None:
    assert worst_outcome(["pass", "warn", "unproven"]) == "unproven"
    assert worst_outcome(["unproven", "fail"]) == "fail"
    assert worst_outcome(["pass", "pass"]) == "pass"
    assert worst_outcome([]) == "unproven"
    assert [exit_code(outcome) for outcome in OUTCOMES] == [0, 0, 1, 1]
