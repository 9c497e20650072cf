# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on an island: transport, bandwidth, correctness and attendance, and pass only when all four pass.

Pure rules on values. Evidence that is missing makes its part ``unproven``; a bandwidth number alone proves nothing, and
a transport line alone proves nothing.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.expectation import Expectation
from ....module_utils._model.island import Lane
from ....module_utils._model.verdict import (
    Bandwidth,
    Cause,
    Outcome,
    PairProof,
    Ranks,
    SlowestPair,
    TransportProof,
    TransportVerdict,
    Verdict,
    VerdictChecks,
    exit_code,
    worst_outcome,
)
from ..diagnosis.causes import CAUSES
from ..topology import unreachable as absence
from ..topology.unreachable import Absent
from .node_faults import PCIE_DEGRADED

# From slow to fast; what is proven may be faster than expected, never slower.
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
_OTHERS = "all others"
# A ratio above this is no bandwidth of this network: loopback, another path, or a tree's figure on two nodes.
IMPLAUSIBLE_RATIO = 1.5
Part = tuple[Outcome, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One measured bandwidth: nccl-tests' busbw in GB/s at one size in bytes. ``algorithm`` is NCCL_ALGO or null."""

    collective: str
    size_bytes: int
    ranks: int
    nodes: int
    busbw_gb_s: float
    algorithm: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """Everything a verdict rests on.

    ``nodes`` are those that should have taken part. ``wrong_values`` is null when values were not checked. ``min_size``
    is the smallest size (bytes) whose bandwidth is judged. ``reasons`` come from the reading of the evidence.
    ``absent`` nodes belong to the island and did not answer, so that it was tested without them.
    """

    island: str
    nodes: tuple[str, ...]
    lane: Lane | None = None
    transport: TransportProof = dataclasses.field(default_factory=TransportProof)
    measured: Measured | None = None
    expectation: Expectation | None = None
    wrong_values: int | None = None
    ranks: Ranks = dataclasses.field(default_factory=Ranks)
    causes: tuple[Cause, ...] = ()
    reasons: tuple[str, ...] = ()
    started_at: str | None = None
    duration_s: float | None = None
    min_size: int = 16 << 20
    absent: tuple[Absent, ...] = ()


def judge(case: Case) -> Verdict:
    """Return the verdict on one island."""
    expected = case.transport.expected or (_LANE_TRANSPORT[case.lane] if case.lane else None)
    transport = dataclasses.replace(case.transport, expected=expected)
    bandwidth = _bandwidth(case)
    parts: dict[str, Part] = {
        "transport": _judge_transport(transport, case),
        "bandwidth": _judge_bandwidth(bandwidth, case),
        "correctness": _judge_values(case.wrong_values),
        "attendance": _judge_attendance(case),
    }
    outcome = worst_outcome(part[0] for part in parts.values())
    causes = _causes(case, transport, parts)
    reasons = [f"{name}: {text}" for name, (_outcome, text) in parts.items() if text]
    return Verdict(
        island=case.island,
        outcome=outcome,
        lane=_lane(case.lane, transport.verdict),
        transport=transport,
        bandwidth=bandwidth,
        wrong_values=case.wrong_values,
        ranks=case.ranks,
        causes=causes,
        slowest_pair=slowest(transport.pairs),
        started_at=case.started_at,
        duration_s=case.duration_s,
        exit_code=exit_code(outcome),
        checks=VerdictChecks(**{name: part[0] for name, part in parts.items()}),
        reasons=tuple(dict.fromkeys((*reasons, *case.reasons))),
    )


def slowest(pairs: t.Iterable[PairProof]) -> SlowestPair | None:
    """Return the pair with the lowest bandwidth; None when no pair was measured."""
    known = [(pair.busbw_gb_s, pair.a, pair.b) for pair in pairs if pair.busbw_gb_s is not None]
    if not known:
        return None
    rate, first, second = min(known)
    return SlowestPair(first, second, rate)


def attendance(expected: int | None, seen: t.Iterable[int] | None) -> Ranks:
    """Return who was asked (rank 0 to ``expected`` - 1) and who came; null where nobody knows."""
    present = None if seen is None else set(seen)
    if expected is None or present is None:
        return Ranks(expected, None if present is None else len(present))
    return Ranks(expected, len(present), tuple(rank for rank in range(expected) if rank not in present))


def _judge_transport(transport: TransportProof, case: Case) -> Part:
    if len(case.nodes) < 2:
        return "pass", ""
    if transport.verdict == "mixed":
        return "fail", "both RDMA and TCP carried the traffic of one job"
    if transport.verdict == "unproven":
        return "unproven", "nothing shows what carried the traffic between nodes"
    wrong = [cause for cause in case.causes if cause.code == "wrong_interface"]
    if wrong:
        return "fail", wrong[0].evidence
    lacking = _uncovered(transport.pairs, case.nodes)
    if lacking:
        return "unproven", f"no proof for {lacking}"
    return _against(transport.verdict, transport.expected)


def _against(seen: TransportVerdict, expected: TransportVerdict | None) -> Part:
    """Compare what was proven with what was expected."""
    if expected is None or expected not in _SPEED or _SPEED[seen] >= _SPEED[expected]:
        return "pass", ""
    text = f"{expected} was expected, {seen} was proven"
    return ("fail" if seen == "tcp" else "warn"), text


def _uncovered(pairs: t.Sequence[PairProof], nodes: t.Sequence[str]) -> str:
    """Return in words which nodes no proof reaches or joins to the others; empty when all are covered."""
    links: dict[str, set[str]] = {node: set() for node in nodes}
    for pair in pairs:
        targets = [node for node in nodes if node != pair.a] if pair.b == _OTHERS else [pair.b]
        for target in targets:
            if pair.a in links and target in links and pair.a != target:
                links[pair.a].add(target)
                links[target].add(pair.a)
    alone = [node for node in nodes if not links[node]]
    if alone:
        return f"node {', '.join(alone[:8])}" + (f" and {len(alone) - 8} more" if len(alone) > 8 else "")
    reached, ahead = set(), [nodes[0]]
    while ahead:
        node = ahead.pop()
        if node not in reached:
            reached.add(node)
            ahead += links[node]
    apart = [node for node in nodes if node not in reached]
    return f"a path between {nodes[0]} and {apart[0]}" if apart else ""


def _bandwidth(case: Case) -> Bandwidth:
    measured, wanted = case.measured, case.expectation
    expected = wanted.busbw_gb_s if wanted else None
    ratio = measured.busbw_gb_s / expected if measured and expected else None
    return Bandwidth(
        collective=measured.collective if measured else None,
        size_bytes=measured.size_bytes if measured else None,
        ranks=measured.ranks if measured else None,
        nodes=measured.nodes if measured else None,
        busbw_gb_s=measured.busbw_gb_s if measured else None,
        expected_gb_s=expected,
        ratio=ratio,
        gate_pass=wanted.gate_pass if wanted else None,
        gate_fail=wanted.gate_fail if wanted else None,
        expectation_source=wanted.source if wanted else None,
        algorithm=measured.algorithm if measured else None,
    )


def _judge_bandwidth(bandwidth: Bandwidth, case: Case) -> Part:
    problem = _not_comparable(bandwidth, case)
    if problem:
        return "unproven", problem
    ratio, gate_pass, gate_fail = bandwidth.ratio or 0.0, bandwidth.gate_pass or 0.0, bandwidth.gate_fail or 0.0
    text = f"{bandwidth.busbw_gb_s:.3g} of {bandwidth.expected_gb_s:.3g} GB/s ({ratio:.0%})"
    if ratio > IMPLAUSIBLE_RATIO:
        return "unproven", f"{text}: more than this network can carry, so something else was measured"
    computed = bandwidth.expectation_source == "computed"
    faulty = next((cause for cause in case.causes if computed and cause.code == PCIE_DEGRADED), None)
    if ratio >= gate_pass and faulty:
        return "warn", f"{text}, and the expectation is that of a fault: {faulty.node}: {faulty.evidence}"
    if ratio >= gate_pass:
        return "pass", ""
    return ("warn" if ratio >= gate_fail else "fail"), text


def _not_comparable(bandwidth: Bandwidth, case: Case) -> str:
    """Return why a bandwidth cannot be judged, empty when it can."""
    wanted = case.expectation
    if case.measured is None:
        return "nothing was measured"
    if wanted is None or not wanted.busbw_gb_s:
        return "no expectation to compare with"
    if case.measured.size_bytes < case.min_size:
        return f"{case.measured.size_bytes} bytes are too few to measure bandwidth"
    if case.measured.nodes != len(case.nodes):
        return f"measured on {case.measured.nodes} of {len(case.nodes)} nodes"
    if wanted.algorithm and (case.measured.algorithm or "").upper() != wanted.algorithm:
        return f"two nodes are comparable with NCCL_ALGO={wanted.algorithm} only"
    return ""


def _judge_values(wrong: int | None) -> Part:
    if wrong is None:
        return "unproven", "values were not checked"
    return ("fail", f"{wrong} wrong values") if wrong else ("pass", "")


def _judge_attendance(case: Case) -> Part:
    """Judge who took part of those that were asked, and who could not be asked."""
    came, gone = _judge_ranks(case.ranks), absence.attendance(case.absent, len(case.nodes))
    return worst_outcome([came[0], gone[0]]), "; ".join(text for text in (came[1], gone[1]) if text)


def _judge_ranks(ranks: Ranks) -> Part:
    if ranks.expected is None or ranks.seen is None:
        return "unproven", "it is not known which ranks took part"
    if ranks.missing or ranks.seen < ranks.expected:
        return "fail", f"{ranks.seen} of {ranks.expected} ranks took part"
    if ranks.seen > ranks.expected:
        return "fail", f"{ranks.seen} ranks took part, {ranks.expected} were asked"
    return "pass", ""


def _causes(case: Case, transport: TransportProof, parts: t.Mapping[str, Part]) -> tuple[Cause, ...]:
    """Return the causes found by readers, and those that the parts themselves name."""
    found = [*case.causes, *(item.cause for item in case.absent)]
    known = {cause.code for cause in found}
    by_rule = {
        "silent_tcp": parts["transport"][0] == "fail" and transport.verdict in ("tcp", "mixed") and not case.causes,
        "gpudirect_off": parts["transport"][0] == "warn"
        and transport.verdict == "rdma_no_gdr"
        and _gdr_seen(transport),
        "ranks_missing": parts["attendance"][0] == "fail" and bool(case.ranks.missing),
    }
    for code, applies in by_rule.items():
        if applies and code not in known:
            part = "attendance" if code == "ranks_missing" else "transport"
            found.append(Cause(code, parts[part][1], CAUSES[code].fix))
    return tuple(found)


def _gdr_seen(transport: TransportProof) -> bool:
    """Whether the evidence can tell GPUDirect at all; counters cannot."""
    return any(pair.gdr is not None for pair in transport.pairs)


def _lane(given: Lane | None, seen: TransportVerdict) -> Lane | None:
    """Return the lane that is proven: never a better one than the nodes' path allows."""
    proven = _PROVEN_LANE.get(seen)
    if given is None or proven is None:
        return given or proven
    return max(given, proven)
