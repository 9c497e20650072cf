# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a test of NCCL showed to its verdict: whatever is missing of the proof keeps the island from passing."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.expectation import Expectation
from ansible_collections.muster.training.plugins.module_utils._model.island import Island
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._model.verdict import Verdict
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import plan
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import plan as bench_plan
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.result import BenchResult
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.verdict import judge_island
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import (
    evidence,
    stages,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.bench_group import GroupRun
from ansible_collections.muster.training.tests.support.nccl_text import ring
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import fixture_node

NODES = ("gpu-1", "gpu-2")
ISLAND = Island("lab", NODES, "A", "ib", 1, 400.0, 46.0)
STAGE = plan.BenchStage("island", ((NODES,),), 1, (1 << 27, 1 << 30), 0.6, 60.0, {"NCCL_ALGO": "RING"})
PLAN = plan.BenchPlan("lab", "nccl", "all_reduce", (STAGE,))
LINES = list(ring("NET/IB/0/GDRDMA", local=1))


def result(**changes: t.Any) -> BenchResult:
    row = {"size_bytes": 1 << 30, "iterations": 9, "time_us": 9.0, "algbw_gb_s": 45.0, "busbw_gb_s": 45.0}
    # The host is what NCCL's lines name: in a pod that is the pod's, not the node's.
    evidence = [{"rank": rank, "host": f"node-{rank + 1}", "node": NODES[rank]} for rank in range(2)]
    common = {"schema": 1, "collective": "all_reduce", "backend": "nccl", "ranks": 2, "nodes": 2}
    return BenchResult.from_dict({**common, "results": [{**row, "wrong_values": 0}], "evidence": evidence, **changes})


def verdict(lines: t.Sequence[str] | None = None, found: BenchResult | None = None, **changes: t.Any) -> Verdict:
    text = "\n".join(LINES if lines is None else lines)
    run = GroupRun(NODES, found or result(), (0, 1), 2, "", {"both": text}, 3.0)
    outcome = stages.StageOutcome({"island": [dataclasses.replace(run, **changes)]})
    wanted = Expectation(46.0, "computed", "rdma_gdr", algorithm="RING")
    subject = evidence.Subject(ISLAND, tuple(Node(name) for name in NODES), wanted, {})
    return judge_island(evidence.collect_evidence(subject, outcome, PLAN, "2026-11-21T18:00:00Z", 3.0))


def test_a_whole_proof_passes_with_the_names_of_the_nodes() -> None:
    found = verdict()
    assert (found.outcome, found.transport.verdict, found.reasons) == ("pass", "rdma_gdr", ())
    assert {(pair.a, pair.b) for pair in found.transport.pairs} == {NODES, NODES[::-1]}


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([], "no evidence of the transport between nodes"),
        ([line for line in LINES if "Channel" not in line], "no evidence of the transport between nodes"),
        ([line for line in LINES if "Init START" not in line and "node-2" not in line], "no proof for node"),
        # The rank map is missing: it is not known on which machines a pair of ranks is on.
        ([line[line.index("[0]") :] for line in LINES if "Channel" in line], "no proof for node"),
        ([line for line in LINES if not line.startswith("node-2")], "no proof for node"),
        (["\x00\xff torn"], "no evidence of the transport"),
    ],
    ids=["empty", "start-up only", "one node, no map", "no rank map", "one node's log", "rubbish"],
)
def test_a_proof_with_a_part_missing_never_passes(lines: list[str], what: str) -> None:
    found = verdict(lines)
    assert found.outcome == "unproven" and what in " ".join(found.reasons)


def test_lines_of_another_job_prove_nothing_for_this_one() -> None:
    foreign = [line.replace("node-", "other-") for line in LINES]
    found = verdict(foreign)
    assert found.outcome == "unproven" and found.checks.transport == "unproven"


def test_values_that_nobody_checked_are_unproven_and_wrong_ones_fail() -> None:
    row = {"size_bytes": 1 << 30, "iterations": 9, "time_us": 9.0, "algbw_gb_s": 45.0, "busbw_gb_s": 45.0}
    assert verdict(found=result(results=[{**row, "wrong_values": None}])).outcome == "unproven"
    assert verdict(found=result(results=[{**row, "wrong_values": 3}])).outcome == "fail"


def test_a_test_that_did_not_end_says_which_rank_fell_silent() -> None:
    found = verdict(result=None, silent={1: "gpu-2"}, problem="timeout_s (65 s) has passed")
    assert found.outcome == "fail" and found.ranks.missing == (1,)
    assert [(cause.code, cause.node) for cause in found.causes] == [("ranks_missing", "gpu-2")]
    assert any("timeout_s" in reason for reason in found.reasons)


def test_a_figure_that_is_no_number_of_this_network_is_unproven() -> None:
    row = {"size_bytes": 1 << 30, "iterations": 9, "time_us": 9.0, "algbw_gb_s": 450.0, "busbw_gb_s": 450.0}
    found = verdict(found=result(results=[{**row, "wrong_values": 0}]))
    assert found.outcome == "unproven" and "more than this network can carry" in found.reasons[0]


def plan(count: int) -> bench_plan.BenchPlan:
    names = tuple(f"n{number:02d}" for number in range(count))
    sizes = (1 << 20, 1 << 24)
    stages = [bench_plan.BenchStage("neighbours", bench_plan.rounds_of_neighbours(names), 1, sizes, 0.1, 9.0)]
    stages.append(bench_plan.BenchStage("island", ((names,),), 1, sizes, 0.1, 9.0))
    stages.append(bench_plan.BenchStage("rails", ((names,),), 1, sizes, 0.1, 9.0, only_if_short=True))
    return bench_plan.BenchPlan("x", "nccl", "all_reduce", tuple(stages))


def result_of(busbw: float) -> BenchResult:
    row = {"size_bytes": 1 << 24, "iterations": 1, "time_us": 1.0, "algbw_gb_s": busbw, "busbw_gb_s": busbw}
    common = {"schema": 1, "collective": "all_reduce", "backend": "nccl", "ranks": 1, "nodes": 1}
    return BenchResult.from_dict({**common, "results": [{**row, "wrong_values": 0}], "evidence": [{"rank": 0}]})


@pytest.mark.parametrize(("time_us", "size"), [(900.0, 1 << 24), (250_000.0, 4 << 20)])
def test_a_small_size_is_judged_when_it_took_long(time_us: float, size: int) -> None:
    # On a link far below its rate the larger size would exceed the budget and is left out.
    result = result_of(0.01)
    row = dataclasses.replace(result.results[0], size_bytes=4 << 20, time_us=time_us)
    run = GroupRun(("n00", "n01"), dataclasses.replace(result, results=(row,)), (0, 1), 2, "", {}, 0.1)
    assert evidence._min_size(run, plan(2)) == size
    assert evidence._min_size(dataclasses.replace(run, result=None), plan(2)) == 1 << 24


SPARKS = Island("desk", NODES, "B", "roce", 2, 200.0, 23.74)


def verdict_on_sparks(busbw: float, via: str = "NET/IB/0", half: bool = False) -> Verdict:
    """Judge two Sparks by their facts and a rate; ``half``: the second half of the second one's port is down."""
    row = {"size_bytes": 1 << 30, "iterations": 9, "time_us": 9.0, "algbw_gb_s": busbw, "busbw_gb_s": busbw}
    run = GroupRun(
        NODES,
        result(results=[{**row, "wrong_values": 0}]),
        (0, 1),
        2,
        "",
        {"both": "\n".join(ring(via, local=1))},
        3.0,
    )
    members = [fixture_node("dgx_spark", name, number) for number, name in enumerate(NODES, 31)]
    if half:
        nics = [
            dataclasses.replace(nic, state="down") if nic.name == "roceP2p1s0f1" else nic for nic in members[1].nics
        ]
        members[1] = dataclasses.replace(members[1], nics=tuple(nics))
    wanted = Expectation(23.74, "override", "rdma_no_gdr", algorithm="RING", gate_pass=0.92)
    subject = evidence.Subject(SPARKS, tuple(members), wanted, {})
    outcome = stages.StageOutcome({"island": [run]})
    return judge_island(evidence.collect_evidence(subject, outcome, PLAN, None, 3.0))


@pytest.mark.parametrize(
    ("busbw", "half", "outcome", "codes"),
    [
        (23.7, False, "pass", []),
        (12.2, False, "fail", ["cx7_half"]),
        # By the facts, which say which half of which machine.
        (12.2, True, "fail", ["cx7_half"]),
        (1.6, False, "fail", ["cx7_degraded"]),
        (3.0, False, "fail", ["cx7_degraded"]),
    ],
)
def test_the_link_between_sparks(busbw: float, half: bool, outcome: str, codes: list[str]) -> None:
    found = verdict_on_sparks(busbw, half=half)
    # The path itself is slow, too.
    assert (found.outcome, [cause.code for cause in found.causes if cause.code != "slow_path"]) == (outcome, codes)
    assert not codes or found.causes[0].code == codes[0]
    if half:
        assert found.causes[0].node == "gpu-2" and "roceP2p1s0f1 is down" in found.causes[0].evidence


def test_a_rate_over_tcp_says_nothing_of_the_halves() -> None:
    found = verdict_on_sparks(1.6, "NET/Socket/0")
    assert found.transport.verdict == "tcp" and {cause.code for cause in found.causes} == {"slow_path"}
