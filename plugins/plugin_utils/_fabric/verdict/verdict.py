# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on an island: transport, bandwidth, correctness and attendance. It passes only when all four pass.

Pure rules on values. A part without evidence is ``unproven``; a bandwidth or a transport alone proves no fabric.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.expectation import Expectation
from ....module_utils._model.island import Lane
from ....module_utils._model.verdict import (
    ALL_OTHERS,
    Bandwidth,
    Cause,
    Outcome,
    PairProof,
    Ranks,
    SlowestPair,
    TransportResult,
    TransportVerdict,
    Verdict,
    VerdictChecks,
    exit_code,
    worst_outcome,
)
from ....module_utils._model.wording import name_some
from ..topology import unreachable as absence
from ..topology.unreachable import AbsentNode
from .cause_table import CAUSES
from .node_faults import PCIE_DEGRADED

# From slow to fast: the proven transport may be faster than the expected one, never slower.
_SPEED: dict[str, int] = {"tcp": 0, "rdma_no_gdr": 1, "rdma_gdr": 2, "mnnvl": 3}
_LANE_TRANSPORT: dict[Lane, TransportVerdict] = {
    "A": "rdma_gdr",
    "B": "rdma_no_gdr",
    "C": "tcp",
    "D": "tcp",
    "E": "tcp",
}
_PROVEN_LANE: dict[TransportVerdict, Lane] = {
    "rdma_gdr": "A",
    "mnnvl": "A",
    "rdma_no_gdr": "B",
    "tcp": "C",
    "mixed": "C",
}
# A higher ratio cannot be this network's: it is loopback, another path, or the figure of a tree on two nodes.
IMPLAUSIBLE_RATIO = 1.5
Part = tuple[Outcome, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """One measured bandwidth: nccl-tests' busbw in GB/s at one size in bytes. ``algorithm`` is NCCL_ALGO or null."""

    collective: str
    size_bytes: int
    ranks: int
    nodes: int
    busbw_gb_s: float
    algorithm: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class IslandEvidence:
    """The evidence for the verdict on one island.

    ``nodes`` are those that should have taken part. ``wrong_values`` is None when values were not checked. ``min_size``
    is the smallest size (bytes) whose bandwidth is judged. ``reasons`` are notes of what collected the evidence.
    ``absent`` nodes belong to the island and did not answer: it was tested without them.
    """

    island: str
    nodes: tuple[str, ...]
    lane: Lane | None = None
    transport: TransportResult = dataclasses.field(default_factory=TransportResult)
    measurement: Measurement | None = None
    expectation: Expectation | None = None
    wrong_values: int | None = None
    ranks: Ranks = dataclasses.field(default_factory=Ranks)
    causes: tuple[Cause, ...] = ()
    reasons: tuple[str, ...] = ()
    started_at: str | None = None
    duration_s: float | None = None
    min_size: int = 16 << 20
    absent: tuple[AbsentNode, ...] = ()


def judge_island(evidence: IslandEvidence) -> Verdict:
    """Return the verdict on one island."""
    expected = evidence.transport.expected or (_LANE_TRANSPORT[evidence.lane] if evidence.lane else None)
    transport = dataclasses.replace(evidence.transport, expected=expected)
    bandwidth = _build_bandwidth(evidence)
    parts: dict[str, Part] = {
        "transport": _judge_transport(transport, evidence),
        "bandwidth": _judge_bandwidth(bandwidth, evidence),
        "correctness": _judge_values(evidence.wrong_values),
        "attendance": _judge_attendance(evidence),
    }
    outcome = worst_outcome(part[0] for part in parts.values())
    causes = _collect_causes(evidence, transport, parts)
    reasons = [f"{name}: {text}" for name, (_outcome, text) in parts.items() if text]
    return Verdict(
        island=evidence.island,
        outcome=outcome,
        lane=_proven_lane(evidence.lane, transport.verdict),
        transport=transport,
        bandwidth=bandwidth,
        wrong_values=evidence.wrong_values,
        ranks=evidence.ranks,
        causes=causes,
        slowest_pair=find_slowest_pair(transport.pairs),
        started_at=evidence.started_at,
        duration_s=evidence.duration_s,
        exit_code=exit_code(outcome),
        checks=VerdictChecks(**{name: part[0] for name, part in parts.items()}),
        reasons=tuple(dict.fromkeys((*reasons, *evidence.reasons))),
    )


def find_slowest_pair(pairs: t.Iterable[PairProof]) -> SlowestPair | None:
    """Return the pair with the lowest bandwidth; None when no pair was measured."""
    rates = [(pair.busbw_gb_s, pair.a, pair.b) for pair in pairs if pair.busbw_gb_s is not None]
    if not rates:
        return None
    rate, first, second = min(rates)
    return SlowestPair(first, second, rate)


def count_ranks(expected: int | None, seen: t.Iterable[int] | None) -> Ranks:
    """Return the expected ranks (0 to ``expected`` - 1), those that took part and those missing; None for unknown."""
    present = None if seen is None else set(seen)
    if expected is None or present is None:
        return Ranks(expected, None if present is None else len(present))
    return Ranks(expected, len(present), tuple(rank for rank in range(expected) if rank not in present))


def _judge_transport(transport: TransportResult, evidence: IslandEvidence) -> Part:
    if len(evidence.nodes) < 2:
        return "pass", ""
    if transport.verdict == "mixed":
        return "fail", "both RDMA and TCP carried the traffic of one job"
    if transport.verdict == "unproven":
        return "unproven", "no evidence of the transport between nodes"
    wrong_interface = next((cause for cause in evidence.causes if cause.code == "wrong_interface"), None)
    if wrong_interface:
        return "fail", wrong_interface.evidence
    unproven = _find_unproven_nodes(transport.pairs, evidence.nodes)
    if unproven:
        return "unproven", f"no proof for {unproven}"
    return _compare_transport(transport.verdict, transport.expected)


def _compare_transport(proven: TransportVerdict, expected: TransportVerdict | None) -> Part:
    """Compare the proven transport with the expected one."""
    if expected is None or expected not in _SPEED or _SPEED[proven] >= _SPEED[expected]:
        return "pass", ""
    text = f"{expected} was expected, {proven} was proven"
    return ("fail" if proven == "tcp" else "warn"), text


def _find_unproven_nodes(pairs: t.Sequence[PairProof], nodes: t.Sequence[str]) -> str:
    """Return in words which nodes have no proof, or none that joins them to the others; empty when all have."""
    links = _collect_links(pairs, nodes)
    alone = [node for node in nodes if not links[node]]
    if alone:
        return f"node {name_some(alone)}"
    joined = _reachable_nodes(links, nodes[0])
    separate = [node for node in nodes if node not in joined]
    return f"a path between {nodes[0]} and {separate[0]}" if separate else ""


def _collect_links(pairs: t.Sequence[PairProof], nodes: t.Sequence[str]) -> dict[str, set[str]]:
    """Return with which nodes each node was proven to be connected."""
    links: dict[str, set[str]] = {node: set() for node in nodes}
    for pair in pairs:
        for target in nodes if pair.b == ALL_OTHERS else [pair.b]:
            if pair.a in links and target in links and pair.a != target:
                links[pair.a].add(target)
                links[target].add(pair.a)
    return links


def _reachable_nodes(links: t.Mapping[str, t.Collection[str]], start: str) -> set[str]:
    """Return the nodes that are connected to one, it among them."""
    joined: set[str] = set()
    queue = [start]
    while queue:
        node = queue.pop()
        if node not in joined:
            joined.add(node)
            queue += links[node]
    return joined


def _build_bandwidth(evidence: IslandEvidence) -> Bandwidth:
    bandwidth = Bandwidth()
    if measured := evidence.measurement:
        bandwidth = Bandwidth(
            collective=measured.collective,
            size_bytes=measured.size_bytes,
            ranks=measured.ranks,
            nodes=measured.nodes,
            busbw_gb_s=measured.busbw_gb_s,
            algorithm=measured.algorithm,
        )
    expected = evidence.expectation
    if expected is None:
        return bandwidth
    ratio = measured.busbw_gb_s / expected.busbw_gb_s if measured and expected.busbw_gb_s else None
    return dataclasses.replace(
        bandwidth,
        expected_gb_s=expected.busbw_gb_s,
        ratio=ratio,
        gate_pass=expected.gate_pass,
        gate_fail=expected.gate_fail,
        expectation_source=expected.source,
    )


def _judge_bandwidth(bandwidth: Bandwidth, evidence: IslandEvidence) -> Part:
    problem = _comparison_problem(bandwidth, evidence)
    if problem:
        return "unproven", problem
    ratio, gate_pass, gate_fail = bandwidth.ratio or 0.0, bandwidth.gate_pass or 0.0, bandwidth.gate_fail or 0.0
    text = f"{bandwidth.busbw_gb_s:.3g} of {bandwidth.expected_gb_s:.3g} GB/s ({ratio:.0%})"
    if ratio > IMPLAUSIBLE_RATIO:
        return "unproven", f"{text}: more than this network can carry, so that another path was measured"
    computed = bandwidth.expectation_source == "computed"
    faulty = next((cause for cause in evidence.causes if computed and cause.code == PCIE_DEGRADED), None)
    if ratio >= gate_pass and faulty:
        return "warn", f"{text}, but the expectation is lowered by a fault: {faulty.node}: {faulty.evidence}"
    if ratio >= gate_pass:
        return "pass", ""
    return ("warn" if ratio >= gate_fail else "fail"), text


def _comparison_problem(bandwidth: Bandwidth, evidence: IslandEvidence) -> str:
    """Return why a bandwidth cannot be judged, empty when it can."""
    expectation = evidence.expectation
    if evidence.measurement is None:
        return "nothing was measured"
    if expectation is None or not expectation.busbw_gb_s:
        return "no expectation to compare with"
    if evidence.measurement.size_bytes < evidence.min_size:
        return f"{evidence.measurement.size_bytes} bytes are too few to judge bandwidth"
    if evidence.measurement.nodes != len(evidence.nodes):
        return f"measured on {evidence.measurement.nodes} of {len(evidence.nodes)} nodes"
    if expectation.algorithm and (evidence.measurement.algorithm or "").upper() != expectation.algorithm:
        return f"a figure of two nodes is comparable only with NCCL_ALGO={expectation.algorithm}"
    return ""


def _judge_values(wrong: int | None) -> Part:
    if wrong is None:
        return "unproven", "values were not checked"
    return ("fail", f"{wrong} wrong values") if wrong else ("pass", "")


def _judge_attendance(evidence: IslandEvidence) -> Part:
    """Judge the ranks that took part, and the nodes that did not answer."""
    parts = [_judge_ranks(evidence.ranks), absence.judge_attendance(evidence.absent, len(evidence.nodes))]
    return worst_outcome(outcome for outcome, _text in parts), "; ".join(text for _outcome, text in parts if text)


def _judge_ranks(ranks: Ranks) -> Part:
    if ranks.expected is None or ranks.seen is None:
        return "unproven", "it is not known which ranks took part"
    if ranks.missing or ranks.seen < ranks.expected:
        return "fail", f"{ranks.seen} of {ranks.expected} ranks took part"
    if ranks.seen > ranks.expected:
        return "fail", f"{ranks.seen} ranks took part, {ranks.expected} were expected"
    return "pass", ""


def _collect_causes(
    evidence: IslandEvidence, transport: TransportResult, parts: t.Mapping[str, Part]
) -> tuple[Cause, ...]:
    """Return the causes in the evidence, of absent nodes, and those that the four parts show."""
    causes = [*evidence.causes, *(node.cause for node in evidence.absent)]
    codes = {cause.code for cause in causes}
    by_rule = {
        "silent_tcp": parts["transport"][0] == "fail" and transport.verdict in ("tcp", "mixed") and not evidence.causes,
        "gpudirect_off": parts["transport"][0] == "warn"
        and transport.verdict == "rdma_no_gdr"
        and _shows_gpudirect(transport),
        "ranks_missing": parts["attendance"][0] == "fail" and bool(evidence.ranks.missing),
    }
    for code, applies in by_rule.items():
        if applies and code not in codes:
            part = "attendance" if code == "ranks_missing" else "transport"
            causes.append(Cause(code, parts[part][1], CAUSES[code].fix))
    return tuple(causes)


def _shows_gpudirect(transport: TransportResult) -> bool:
    """Return whether the evidence can show GPUDirect at all; counters cannot."""
    return any(pair.gdr is not None for pair in transport.pairs)


def _proven_lane(lane: Lane | None, transport: TransportVerdict) -> Lane | None:
    """Return the lane that is proven: never a better one than the lane of the nodes' path."""
    proven = _PROVEN_LANE.get(transport)
    if lane is None or proven is None:
        return lane or proven
    return max(lane, proven)
