# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the results of the stages into the evidence of a verdict: proofs, figures, attendance, causes."""

from __future__ import annotations

import dataclasses
import io
import typing as t

from ....module_utils._model.expectation import Expectation
from ....module_utils._model.island import Island
from ....module_utils._model.node import Node
from ....module_utils._model.verdict import Cause, TransportResult
from ..._fabric.bench import plan as plans
from ..._fabric.bench.expectation import peer_expectation
from ..._fabric.bench.nccl_environment import find_collective_interface
from ..._fabric.diagnosis.file import judge_scan
from ..._fabric.diagnosis.scan import scan_log
from ..._fabric.topology.unreachable import AbsentNode
from ..._fabric.verdict import pairs
from ..._fabric.verdict.cause_table import CAUSES
from ..._fabric.verdict.node_faults import find_node_faults
from ..._fabric.verdict.spark_pair import find_pair_faults, find_rate_cause, is_spark
from ..._fabric.verdict.transport import build_transport, read_transport
from ..._fabric.verdict.transport_counters import TransportProof, read_counters, read_sockets
from ..._fabric.verdict.verdict import IslandEvidence, Measurement, count_ranks
from .bench_group import GroupRun
from .stages import StageOutcome

# gloo copies through the CPU: between 30 and 60 MiB a figure is already that of the link.
_MIN_SIZE = 16 << 20
# A smaller size is enough when it takes so long that latency does not matter: larger ones are left out then, because
# they would exceed the budget.
_LONG_US = 100_000
_LOG_NAME = "nccl log"
_PAIR = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The island under test: its nodes' facts, what it should reach, and the addresses that the user declared.

    ``absent`` nodes belong to it and did not answer. ``own_network``: its processes use the nodes' own interfaces;
    a pod without hostNetwork does not.
    """

    island: Island
    members: tuple[Node, ...]
    expectation: Expectation
    addresses: t.Mapping[str, str]
    absent: tuple[AbsentNode, ...] = ()
    own_network: bool = True


def collect_evidence(
    subject: Subject, outcome: StageOutcome, plan: plans.BenchPlan, started_at: str | None, duration_s: float
) -> IslandEvidence:
    """Return the case of an island."""
    island = subject.island
    whole = next(iter(outcome.runs.get("island") or outcome.runs.get("inside") or ()), None)
    if whole is None:
        reason = "one rank: no network between ranks to test"
        bare = IslandEvidence(
            island.name, island.nodes, island.lane, expectation=subject.expectation, absent=subject.absent
        )
        return dataclasses.replace(bare, reasons=(reason,), started_at=started_at)
    proof = prove_transport(subject, whole)
    if whole.result is None:
        silent = whole.silent
        ranks = set(whole.ranks_seen) - set(silent)
    else:
        silent = {}
        ranks = {item.rank for item in whole.result.evidence}
    pair_proofs = [pair for run in _pair_runs(outcome) for pair in prove_transport(subject, run).transport.pairs]
    proofs = pairs.merge_pair_proofs(proof.transport.pairs, pair_proofs, outcome.rates)
    missing_causes = (_missing_cause(rank, node) for rank, node in silent.items())
    reasons = (*proof.reasons, whole.problem, *whole.notes, *_rail_reasons(subject, outcome))
    return IslandEvidence(
        island=island.name,
        nodes=island.nodes,
        lane=island.lane,
        transport=dataclasses.replace(proof.transport, pairs=proofs),
        measurement=_build_measurement(whole, plan),
        expectation=_choose_expectation(subject, outcome, plan),
        wrong_values=whole.result.wrong_values if whole.result else None,
        ranks=count_ranks(whole.rank_count, ranks),
        causes=(
            *proof.causes,
            *_find_spark_causes(subject, whole, proof.transport),
            *_find_slow_causes(subject, outcome),
            *find_node_faults(island, subject.members),
            *missing_causes,
        ),
        reasons=tuple(reason for reason in reasons if reason),
        started_at=started_at,
        duration_s=duration_s,
        min_size=_min_size(whole, plan),
        absent=subject.absent,
    )


def prove_transport(subject: Subject, run: GroupRun) -> TransportProof:
    """Return the proof of the transport: NCCL's channel lines, else RDMA counters; for gloo the ranks' sockets."""
    island, expected = subject.island, subject.expectation.transport
    if run.result is None:
        return TransportProof(TransportResult(expected=expected))
    if run.result.backend == "gloo":
        interfaces = {
            node.name: name
            for node in subject.members
            if (name := find_collective_interface(node, island, subject.members, subject.addresses.get(node.name)))
        }
        comparable = subject.own_network and island.link != "loopback"
        return read_sockets(run.result, expected, interfaces if comparable else None)
    scan = scan_log(io.BytesIO("\n".join(run.logs.values()).encode()))
    nodes = {str(item.host): str(item.node) for item in run.result.evidence if item.host and item.node}
    reading = read_transport(scan.facts, {}, no_verbs=False, table=False)
    transport = build_transport(reading, _LOG_NAME, expected)
    if transport.verdict == "unproven":
        return read_counters(run.result, expected)
    proofs = tuple(
        dataclasses.replace(pair, a=nodes.get(pair.a, pair.a), b=nodes.get(pair.b, pair.b)) for pair in transport.pairs
    )
    causes = judge_scan(scan, _LOG_NAME).causes
    return TransportProof(dataclasses.replace(transport, pairs=proofs), causes, reading.notes)


def _build_measurement(whole: GroupRun, plan: plans.BenchPlan) -> Measurement | None:
    row = whole.result.largest_row if whole.result else None
    if whole.result is None or row is None:
        return None
    stage = next(stage for stage in plan.stages if stage.name in ("island", "inside") and whole.nodes in _groups(stage))
    return Measurement(
        plan.collective,
        row.size_bytes,
        whole.result.ranks,
        len(whole.result.node_names),
        row.busbw_gb_s,
        stage.environment.get("NCCL_ALGO"),
    )


def _min_size(whole: GroupRun, plan: plans.BenchPlan) -> int:
    """Return the smallest size in bytes whose bandwidth is judged."""
    row = whole.result.largest_row if whole.result else None
    slow_sizes = [row.size_bytes] if row and row.time_us >= _LONG_US else []
    return min(_MIN_SIZE, max(plan.stages[-1].sizes), *slow_sizes)


def _groups(stage: plans.BenchStage) -> set[tuple[str, ...]]:
    return {group for groups in stage.rounds for group in groups}


def _choose_expectation(subject: Subject, outcome: StageOutcome, plan: plans.BenchPlan) -> Expectation:
    """Return the expectation; where nothing computes one, what the island's own pairs reach (NCCL only).

    With three or more nodes the bus bandwidth of a ring does not depend on their number, so that an island slower than
    its pairs has a fault that no pair has. With gloo, pairs that share processors cannot be compared so.
    """
    if plan.backend != "nccl" or subject.island.link == "loopback":
        return subject.expectation
    return peer_expectation(subject.expectation, [rate for rate in outcome.rates.values() if rate is not None])


def _pair_runs(outcome: StageOutcome) -> list[GroupRun]:
    return [run for name in ("pairs", "neighbours") for run in outcome.runs.get(name, []) if run.result is not None]


def _find_slow_causes(subject: Subject, outcome: StageOutcome) -> tuple[Cause, ...]:
    """Return the nodes and paths to blame, by pairs, by the search by halves, and inside the nodes."""
    pair_causes = pairs.find_pair_causes(outcome.rates, subject.expectation.busbw_gb_s)
    search_causes = pairs.build_search_causes(outcome.suspects) if outcome.suspects else ()
    several = len(subject.island.nodes) > 1
    rates = {run.nodes[0]: run.busbw_gb_s for run in outcome.runs.get("inside", [])} if several else {}
    return (*pair_causes, *search_causes, *pairs.find_inside_causes(rates))


def _find_spark_causes(subject: Subject, whole: GroupRun, transport: TransportResult) -> tuple[Cause, ...]:
    """Return what is wrong with the link between DGX Sparks: by their facts, else by the rate alone."""
    interfaces = {
        node.name: find_collective_interface(node, subject.island, subject.members, subject.addresses.get(node.name))
        for node in subject.members
    }
    causes = find_pair_faults(subject.members, interfaces)
    row = whole.result.largest_row if whole.result else None
    is_pair = len(subject.members) == _PAIR and all(map(is_spark, subject.members))
    is_rdma = transport.verdict in ("rdma_gdr", "rdma_no_gdr")
    by_rate = find_rate_cause(row.busbw_gb_s, row.size_bytes) if row and is_pair and is_rdma else None
    if by_rate is None or any(cause.code == by_rate.code for cause in causes):
        return causes
    return (*causes, by_rate)


def _rail_reasons(subject: Subject, outcome: StageOutcome) -> t.Iterator[str]:
    """Yield what each rail carries alone, where the island fell short and its rails were tested."""
    for run in outcome.runs.get("rails", []):
        rate = run.busbw_gb_s
        if rate is None:
            yield f"rails: {run.problem}"
            continue
        count = subject.island.nic_count or 1
        wire = (subject.island.nic_rate_gbps or 0.0) / 8
        share = f", {rate / wire:.0%} of its wire" if wire else ""
        average = "on average" if run.result and run.result.split_mod is None else "at least"
        yield f"{count} rails tested one by one reach {rate:.3g} GB/s {average}{share}"


def _missing_cause(rank: int, node: str) -> Cause:
    return Cause(
        "ranks_missing", f"rank {rank} on {node} started and did not report its end", CAUSES["ranks_missing"].fix, node
    )
