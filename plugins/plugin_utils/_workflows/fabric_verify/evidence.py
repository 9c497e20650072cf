# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the stages showed to the case that the verdict rests on: proofs, figures, attendance, causes.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import io
import typing as t

from ....module_utils._model.expectation import Expectation
from ....module_utils._model.island import Island
from ....module_utils._model.node import Node
from ....module_utils._model.verdict import Cause, TransportProof
from ..._fabric.bench import plan as plans
from ..._fabric.bench.expectation import peer_expectation
from ..._fabric.bench.nccl_environment import collective_interface
from ..._fabric.diagnosis import file, scan
from ..._fabric.diagnosis.causes import CAUSES
from ..._fabric.topology.unreachable import Absent
from ..._fabric.verdict import pairs
from ..._fabric.verdict.node_faults import node_faults
from ..._fabric.verdict.transport import RankPlace, as_transport, read_transport
from ..._fabric.verdict.transport_counters import Seen, read_counters, read_sockets
from ..._fabric.verdict.verdict import Case, Measured, attendance
from .bench_group import GroupRun
from .stages import Outcome

# gloo copies through the CPU: between 30 and 60 MiB a figure is already that of the link.
_MIN_SIZE = 16 << 20
# A smaller size tells as much when it takes so long that latency is no part of it: larger ones are then left out,
# because they would exceed the budget.
_LONG_US = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The island under test: its nodes' facts, what it should reach, and the addresses that the user declared.

    ``absent`` nodes belong to it and did not answer. ``own_network``: its processes see the nodes' own interfaces, as
    those of a pod with a network of its own do not.
    """

    island: Island
    members: tuple[Node, ...]
    wanted: Expectation
    addresses: t.Mapping[str, str]
    absent: tuple[Absent, ...] = ()
    own_network: bool = True


def make(subject: Subject, outcome: Outcome, plan: plans.BenchPlan, started_at: str | None, duration_s: float) -> Case:
    """Return the case of an island."""
    island = subject.island
    whole = next(iter(outcome.runs.get("island") or outcome.runs.get("inside") or ()), None)
    if whole is None:
        reason = "one CPU node: nothing crosses a network and there is no GPU to test"
        bare = Case(island.name, island.nodes, island.lane, expectation=subject.wanted, absent=subject.absent)
        return dataclasses.replace(bare, reasons=(reason,), started_at=started_at)
    seen = evidence(subject, whole)
    lost = whole.silent if whole.result is None else {}
    ranks = set(whole.ranks_seen) - set(lost) if whole.result is None else {item.rank for item in whole.result.evidence}
    blamed = tuple(_missing_cause(rank, node) for rank, node in lost.items())
    alone = [proof for group in _pairs(outcome) for proof in evidence(subject, group).transport.pairs]
    proofs = pairs.with_pairs(seen.transport.pairs, alone, outcome.rates)
    reasons = (*seen.reasons, whole.problem, *whole.notes, *_rails(subject, outcome))
    return Case(
        island=island.name,
        nodes=island.nodes,
        lane=island.lane,
        transport=dataclasses.replace(seen.transport, pairs=proofs),
        measured=_measured(whole, plan),
        expectation=_expected(subject, outcome, plan),
        wrong_values=whole.result.wrong_values if whole.result else None,
        ranks=attendance(whole.ranks_asked, ranks),
        causes=(*seen.causes, *_slow(subject, outcome), *node_faults(island, subject.members), *blamed),
        reasons=tuple(reason for reason in reasons if reason),
        started_at=started_at,
        duration_s=duration_s,
        min_size=_min_size(whole, plan),
        absent=subject.absent,
    )


def evidence(subject: Subject, run: GroupRun) -> Seen:
    """Return the proof of the transport: NCCL's channel lines, else RDMA counters; for gloo the ranks' sockets."""
    island, expected = subject.island, subject.wanted.transport
    if run.result is None:
        return Seen(TransportProof(expected=expected))
    if run.result.backend == "gloo":
        right = {
            node.name: name
            for node in subject.members
            if (name := collective_interface(node, island, subject.members, subject.addresses.get(node.name)))
        }
        told = subject.own_network and island.link != "loopback"
        return read_sockets(run.result, expected, right if told else None)
    scanned = scan.scan(io.BytesIO("\n".join(run.logs.values()).encode()))
    places = {str(item.host): str(item.node) for item in run.result.evidence if item.host and item.node}
    declared: dict[int, RankPlace] = {}
    reading = read_transport(scanned.facts, declared, no_verbs=False, table=False)
    proven = as_transport(reading, "nccl log", expected)
    if proven.verdict == "unproven":
        return read_counters(run.result, expected)
    found = tuple(dataclasses.replace(p, a=places.get(p.a, p.a), b=places.get(p.b, p.b)) for p in proven.pairs)
    causes = file.judge(scanned, "nccl log").causes
    return Seen(dataclasses.replace(proven, pairs=found), causes, reading.notes)


def _measured(whole: GroupRun, plan: plans.BenchPlan) -> Measured | None:
    row = whole.result.judged if whole.result else None
    if whole.result is None or row is None:
        return None
    stage = next(stage for stage in plan.stages if stage.name in ("island", "inside") and whole.nodes in _groups(stage))
    algorithm = stage.environment.get("NCCL_ALGO")
    took_part = len(whole.result.names)
    return Measured(plan.collective, row.size_bytes, whole.result.ranks, took_part, row.busbw_gb_s, algorithm)


def _min_size(whole: GroupRun, plan: plans.BenchPlan) -> int:
    """Return the bytes from which a bandwidth is judged."""
    row = whole.result.judged if whole.result else None
    long = [row.size_bytes] if row and row.time_us >= _LONG_US else []
    return min(_MIN_SIZE, max(plan.stages[-1].sizes), *long)


def _groups(stage: plans.Stage) -> set[tuple[str, ...]]:
    return {group for groups in stage.rounds for group in groups}


def _expected(subject: Subject, outcome: Outcome, plan: plans.BenchPlan) -> Expectation:
    """Return the expectation; where nothing computes one, what the island's own pairs reach (NCCL only).

    From three nodes on the bus bandwidth of a ring does not depend on their number, so that an island that is slower
    than its pairs has a fault that no pair has. gloo shares processors between pairs and tells no such thing.
    """
    known = [rate for rate in outcome.rates.values() if rate is not None]
    if plan.backend != "nccl" or subject.island.link == "loopback":
        return subject.wanted
    return peer_expectation(subject.wanted, known)


def _pairs(outcome: Outcome) -> list[GroupRun]:
    return [run for name in ("pairs", "neighbours") for run in outcome.runs.get(name, []) if run.result is not None]


def _slow(subject: Subject, outcome: Outcome) -> tuple[Cause, ...]:
    """Return the nodes and paths to blame, by pairs, by halves, and inside the nodes."""
    found = pairs.pair_causes(outcome.rates, subject.wanted.busbw_gb_s)
    halves = pairs.search_causes(outcome.found) if outcome.found else ()
    several = len(subject.island.nodes) > 1
    rates = {run.nodes[0]: run.busbw_gb_s for run in outcome.runs.get("inside", [])} if several else {}
    return (*found, *halves, *pairs.inside_causes(rates))


def _rails(subject: Subject, outcome: Outcome) -> t.Iterator[str]:
    """Say what each rail carries by itself, where the island fell short and its rails were tested."""
    for run in outcome.runs.get("rails", []):
        rate = run.busbw_gb_s
        if rate is None:
            yield f"rails: {run.problem}"
            continue
        count = subject.island.nic_count or 1
        wire = (subject.island.nic_rate_gbps or 0.0) / 8
        share = f", {rate / wire:.0%} of its wire" if wire else ""
        tool = "on average" if run.result and run.result.split_mod is None else "at least"
        yield f"{count} rails, each by itself, reach {rate:.3g} GB/s {tool}{share}"


def _missing_cause(rank: int, node: str) -> Cause:
    return Cause("ranks_missing", f"rank {rank} on {node} fell silent in the test", CAUSES["ranks_missing"].fix, node)
