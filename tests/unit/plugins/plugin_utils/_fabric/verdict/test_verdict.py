# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict: pass only when transport, bandwidth, correctness and attendance all pass."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.expectation import Expectation
from ansible_collections.muster.training.plugins.module_utils._model.verdict import (
    TRANSPORT_VERDICTS,
    Cause,
    PairProof,
    Ranks,
    TransportResult,
    Verdict,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.verdict import (
    IslandEvidence,
    Measurement,
    count_ranks,
    find_slowest_pair,
    judge_island,
)

NODES = ("a", "b", "c")
PAIRS = tuple(PairProof(x, y, "IB", "nccl.log:7", True) for x, y in (("a", "b"), ("b", "c"), ("c", "a")))
GOOD = IslandEvidence(
    island="rack-1",
    nodes=NODES,
    lane="A",
    transport=TransportResult("rdma_gdr", "rdma_gdr", "nccl_log", PAIRS),
    measurement=Measurement("all_reduce", 1 << 30, 24, 3, 360.0),
    expectation=Expectation(368.0, "computed", "rdma_gdr"),
    wrong_values=0,
    ranks=Ranks(24, 24),
    started_at="2026-11-21T10:00:00Z",
    duration_s=12.5,
)


def case(**changes: t.Any) -> IslandEvidence:
    return dataclasses.replace(GOOD, **changes)


def via(verdict: str, expected: str | None = "rdma_gdr", pairs: tuple[PairProof, ...] = PAIRS) -> TransportResult:
    return TransportResult(t.cast(t.Any, expected), t.cast(t.Any, verdict), "nccl_log", pairs)


def test_all_four_pass() -> None:
    found = judge_island(GOOD)
    assert (found.outcome, found.exit_code, found.lane, found.reasons, found.causes) == ("pass", 0, "A", (), ())
    assert found.bandwidth.ratio == pytest.approx(360 / 368)
    assert Verdict.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("changes", "part", "outcome"),
    [
        # Transport.
        ({"transport": via("unproven")}, "transport", "unproven"),
        ({"transport": via("mixed")}, "transport", "fail"),
        ({"transport": via("tcp")}, "transport", "fail"),
        ({"transport": via("rdma_no_gdr")}, "transport", "warn"),
        ({"transport": via("rdma_gdr", "mnnvl")}, "transport", "warn"),
        ({"transport": via("rdma_gdr", pairs=PAIRS[:1])}, "transport", "unproven"),
        ({"transport": via("rdma_gdr", pairs=())}, "transport", "unproven"),
        ({"transport": via("tcp", None), "lane": None}, "transport", "pass"),
        ({"transport": via("tcp", None)}, "transport", "fail"),
        ({"transport": via("rdma_no_gdr", None), "lane": "B"}, "transport", "pass"),
        ({"transport": via("mnnvl")}, "transport", "pass"),
        ({"causes": (Cause("wrong_interface", "a: eth1", "x"),)}, "transport", "fail"),
        # Bandwidth: gates 0.85 and 0.70 of what is expected.
        ({"measurement": Measurement("all_reduce", 1 << 30, 24, 3, 0.86 * 368)}, "bandwidth", "pass"),
        ({"measurement": Measurement("all_reduce", 1 << 30, 24, 3, 0.84 * 368)}, "bandwidth", "warn"),
        ({"measurement": Measurement("all_reduce", 1 << 30, 24, 3, 0.69 * 368)}, "bandwidth", "fail"),
        ({"measurement": Measurement("all_reduce", 1 << 30, 24, 3, 0.0)}, "bandwidth", "fail"),
        ({"measurement": Measurement("all_reduce", 1 << 30, 24, 3, 2 * 368.0)}, "bandwidth", "unproven"),
        ({"measurement": Measurement("all_reduce", 1 << 16, 24, 3, 360.0)}, "bandwidth", "unproven"),
        ({"measurement": Measurement("all_reduce", 1 << 30, 16, 2, 360.0)}, "bandwidth", "unproven"),
        ({"measurement": None}, "bandwidth", "unproven"),
        ({"expectation": None}, "bandwidth", "unproven"),
        ({"expectation": Expectation(None, "peer")}, "bandwidth", "unproven"),
        # Correctness and attendance.
        ({"wrong_values": None}, "correctness", "unproven"),
        ({"wrong_values": 1}, "correctness", "fail"),
        ({"ranks": Ranks(24, 23, (7,))}, "attendance", "fail"),
        ({"ranks": Ranks(24, 25)}, "attendance", "fail"),
        ({"ranks": Ranks(None, 24)}, "attendance", "unproven"),
        ({"ranks": Ranks(24, None)}, "attendance", "unproven"),
    ],
)
def test_one_part_decides(changes: dict[str, t.Any], part: str, outcome: str) -> None:
    found = judge_island(case(**changes))
    checks = dataclasses.asdict(found.checks)
    assert checks.pop(part) == outcome and set(checks.values()) == {"pass"}
    assert found.outcome == outcome
    assert found.exit_code == (0 if outcome in ("pass", "warn") else 1)
    assert bool(found.reasons) == (outcome != "pass")


def test_two_nodes_need_the_ring() -> None:
    pairs = (PairProof("a", "b", "IB", "x:1", True),)
    two = case(
        nodes=("a", "b"),
        transport=via("rdma_gdr", pairs=pairs),
        measurement=Measurement("all_reduce", 1 << 30, 16, 2, 360.0),
        expectation=Expectation(368.0, "computed", "rdma_gdr", algorithm="RING"),
    )
    assert judge_island(two).checks.bandwidth == "unproven"
    ring = dataclasses.replace(two, measurement=Measurement("all_reduce", 1 << 30, 16, 2, 360.0, "Ring"))
    assert judge_island(ring).outcome == "pass"


def test_one_node_crosses_no_network() -> None:
    found = judge_island(
        case(
            nodes=("a",),
            transport=TransportResult(),
            measurement=Measurement("all_reduce", 1 << 30, 8, 1, 478.0),
            expectation=Expectation(476.0, "override"),
            ranks=Ranks(8, 8),
        )
    )
    assert (found.outcome, found.checks.transport) == ("pass", "pass")


def test_proofs_must_join_all_nodes() -> None:
    apart = tuple(PairProof(x, y, "IB", "x:1", True) for x, y in (("a", "b"), ("c", "d")))
    found = judge_island(
        case(
            nodes=("a", "b", "c", "d"),
            transport=via("rdma_gdr", pairs=apart),
            measurement=Measurement("all_reduce", 1 << 30, 32, 4, 360.0),
        )
    )
    assert found.checks.transport == "unproven" and "a path between a and c" in found.reasons[0]


def test_ranks_without_a_node_prove_nothing() -> None:
    pairs = (PairProof("rank 0", "rank 8", "IB", "x:1", True),)
    assert judge_island(case(transport=via("rdma_gdr", pairs=pairs))).checks.transport == "unproven"


def test_counters_that_name_all_others_cover_them() -> None:
    pairs = tuple(PairProof(node, "all others", "rdma", "1 bytes") for node in NODES)
    assert judge_island(case(transport=via("rdma_no_gdr", "rdma_no_gdr", pairs))).checks.transport == "pass"


def test_causes_that_the_parts_name() -> None:
    silent = judge_island(case(transport=via("tcp")))
    assert [cause.code for cause in silent.causes] == ["silent_tcp"] and silent.lane == "C"
    without = judge_island(
        case(transport=via("rdma_no_gdr", pairs=tuple(dataclasses.replace(pair, gdr=False) for pair in PAIRS)))
    )
    assert [cause.code for cause in without.causes] == ["gpudirect_off"] and without.lane == "B"
    missing = judge_island(case(ranks=count_ranks(24, range(20))))
    assert [cause.code for cause in missing.causes] == ["ranks_missing"]
    assert missing.ranks.missing == (20, 21, 22, 23)


def test_the_lane_is_never_better_than_the_path() -> None:
    assert judge_island(case(lane="D", transport=via("tcp", "tcp"))).lane == "D"
    assert judge_island(case(lane="C", transport=via("rdma_gdr", "tcp"))).lane == "C"
    assert judge_island(case(lane=None, transport=via("unproven"))).lane is None


def test_attendance() -> None:
    assert count_ranks(2, [0, 1]) == Ranks(2, 2)
    assert count_ranks(3, [0, 2, 2]) == Ranks(3, 2, (1,))
    assert count_ranks(None, [0]) == Ranks(None, 1)
    assert count_ranks(2, None) == Ranks(2, None)


def test_the_slowest_pair() -> None:
    assert find_slowest_pair(PAIRS) is None
    measured = [
        dataclasses.replace(pair, busbw_gb_s=rate) for pair, rate in zip(PAIRS, (40.0, 12.5, 41.0), strict=True)
    ]
    found = find_slowest_pair(measured)
    assert found and (found.a, found.b, found.busbw_gb_s) == ("b", "c", 12.5)


cases = st.builds(
    IslandEvidence,
    island=st.just("x"),
    nodes=st.sampled_from([("a",), ("a", "b"), NODES]),
    lane=st.sampled_from([None, "A", "B", "C", "D", "E"]),
    transport=st.builds(
        TransportResult,
        st.sampled_from([None, *TRANSPORT_VERDICTS]),
        st.sampled_from(TRANSPORT_VERDICTS),
        st.just("nccl_log"),
        st.lists(st.sampled_from(PAIRS), max_size=3).map(tuple),
    ),
    measurement=st.none()
    | st.builds(
        Measurement,
        st.just("all_reduce"),
        st.integers(0, 1 << 40),
        st.integers(0, 64),
        st.integers(0, 4),
        st.floats(0, 1e6),
        st.sampled_from([None, "RING", "TREE"]),
    ),
    expectation=st.none()
    | st.builds(
        Expectation,
        st.none() | st.floats(0, 1e6),
        st.just("computed"),
        algorithm=st.sampled_from([None, "RING"]),
    ),
    wrong_values=st.none() | st.integers(0, 5),
    ranks=st.builds(Ranks, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
)


@given(cases)
def test_a_pass_rests_on_four_passes(one: IslandEvidence) -> None:
    found = judge_island(one)
    checks = dataclasses.asdict(found.checks).values()
    assert (found.outcome == "pass") == (set(checks) == {"pass"})
    if found.outcome == "pass":
        assert one.wrong_values == 0 and one.measurement and one.expectation and one.ranks.expected == one.ranks.seen
        assert len(one.nodes) == 1 or one.transport.verdict not in ("unproven", "mixed")
    assert len(found.reasons) >= sum(check != "pass" for check in checks)
    assert Verdict.from_dict(found.to_dict()) == found
