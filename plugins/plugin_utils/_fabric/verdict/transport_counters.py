# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transport proven without NCCL's log: by the sockets of gloo's ranks, or by the byte counters of NICs.

gloo prints no channel lines. Its proof is a connection of which both ends belong to ranks of the job, with the
interface that owns the end, and that interface's byte counters, which must have grown by at least half of what the
collectives had to send. RDMA ports count their bytes in hardware and netdevs do not count RDMA, so that both together
show which of them carried the traffic, but never whether GPUDirect was used.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.verdict import ALL_OTHERS, Cause, PairProof, TransportResult, TransportVerdict
from ..bench.result import BenchResult, Counters, RankEvidence, SocketEnd
from .cause_table import CAUSES

# What must cross a node's NIC at least, per byte of the collective's size and for N nodes (nccl-tests'
# doc/PERFORMANCE.md: the lower bounds behind busbw): all-reduce 2(N-1)/N, the others (N-1)/N.
_TWICE = "all_reduce"
# Counters also hold other traffic and miss what was sent before they were first read: half is far from both.
SHARE = 0.5
# gloo connects every pair and uses only some: a connection with less than this part of the traffic was not used.
IDLE_PART = 100


@dataclasses.dataclass(frozen=True, slots=True)
class TransportProof:
    """The proven transport, the causes found with it, and one sentence for each thing that is not proven."""

    transport: TransportResult
    causes: tuple[Cause, ...] = ()
    reasons: tuple[str, ...] = ()


def needed_bytes(result: BenchResult, nodes: int) -> int:
    """Return how many bytes each of ``nodes`` nodes had to send at least during the test."""
    if nodes < 2:
        return 0
    factor = (2 if result.collective == _TWICE else 1) * (nodes - 1) / nodes
    return int(SHARE * factor * sum(row.size_bytes * row.iterations for row in result.results))


def read_sockets(
    result: BenchResult,
    expected: TransportVerdict | None = None,
    interfaces: t.Mapping[str, str] | None = None,
) -> TransportProof:
    """Return the transport of a gloo test.

    :param interfaces: node to the interface that its traffic should use; another one is the cause ``wrong_interface``.
    """
    names = {item.rank: _node_name(item) for item in result.evidence}
    need = needed_bytes(result, len(set(names.values())))
    pairs: dict[tuple[str, str, str], PairProof] = {}
    causes: dict[tuple[str, str], Cause] = {}
    reasons: list[str] = []
    for item in result.evidence:
        node = names[item.rank]
        for end in item.sockets:
            other = names.get(end.peer_rank) if end.peer_rank is not None else None
            idle = end.carried_bytes is not None and end.carried_bytes * IDLE_PART < need
            if other is None or other == node or idle:
                continue
            evidence, problem = _interface_traffic(item, end, need)
            if problem:
                reasons.append(f"{node} to {other}: {problem}")
                continue
            via = end.interface or ""
            pairs.setdefault((node, other, via), PairProof(node, other, via, evidence))
            expected_via = (interfaces or {}).get(node)
            if expected_via and expected_via != via:
                causes[node, via] = _wrong_interface_cause(node, via, expected_via, end)
    verdict: TransportVerdict = "tcp" if pairs else "unproven"
    transport = TransportResult(expected, verdict, "socket_peers_and_netdev_counters", tuple(pairs.values()))
    if not pairs and not reasons:
        reasons.append("no connection between ranks of different nodes was found")
    return TransportProof(transport, tuple(causes.values()), tuple(dict.fromkeys(reasons)))


def read_counters(result: BenchResult, expected: TransportVerdict | None = None) -> TransportProof:
    """Return the transport of an NCCL test without its log, from RDMA ports' and netdevs' byte counters."""
    nodes: dict[str, RankEvidence] = {}
    for item in result.evidence:
        nodes.setdefault(_node_name(item), item)
    need = needed_bytes(result, len(nodes))
    kinds: dict[str, tuple[str, str]] = {}
    for node, item in nodes.items():
        kinds[node] = _find_carrier(item, need)
    carriers = {kind for kind, _text in kinds.values()}
    verdict: TransportVerdict = "unproven"
    if need and carriers <= {"rdma", "tcp", "mixed"}:
        single = "tcp" if carriers == {"tcp"} else "rdma_no_gdr"
        verdict = "mixed" if len(carriers) > 1 or "mixed" in carriers else t.cast(TransportVerdict, single)
    reasons = [f"{node}: {text}" for node, (kind, text) in kinds.items() if kind == "unknown"]
    if verdict == "rdma_no_gdr":
        reasons.append("counters show RDMA, not whether GPUDirect was used")
    pairs = tuple(_counter_proofs(kinds)) if verdict != "unproven" else ()
    return TransportProof(TransportResult(expected, verdict, "rdma_counters", pairs), (), tuple(reasons))


def _node_name(item: RankEvidence) -> str:
    return item.node or item.host or f"rank {item.rank}"


def _interface_traffic(item: RankEvidence, end: SocketEnd, need: int) -> tuple[str, str]:
    """Return (evidence, "") when the interface of a connection carried enough, else ("", the problem)."""
    if not end.interface:
        return "", f"no interface owns the local address {end.local}"
    counters = item.netdev.get(end.interface)
    if counters is None:
        return "", f"no byte counter of {end.interface} was read"
    carried = min(counters.sent_bytes, counters.received_bytes)
    if carried < max(need, 1):
        return "", f"{end.interface} carried {max(carried, 0)} bytes, at least {need} were expected"
    own = f", {end.tx_bytes[1] - end.tx_bytes[0]} of them on this connection" if end.tx_bytes else ""
    return f"{end.local} to {end.peer}; {end.interface} sent {counters.sent_bytes} bytes{own}", ""


def _wrong_interface_cause(node: str, via: str, expected: str, end: SocketEnd) -> Cause:
    evidence = f"{node}: connection {end.local} to {end.peer} is on {via}, {expected} was expected"
    return Cause("wrong_interface", evidence, CAUSES["wrong_interface"].fix, node)


def _find_carrier(item: RankEvidence, need: int) -> tuple[str, str]:
    """Return what carried a node's traffic (rdma, tcp, mixed, unknown) and the counters in words."""
    ports = _sent_bytes(item.rdma)
    devices = _sent_bytes({name: value for name, value in item.netdev.items() if name != "lo"})
    text = f"RDMA ports sent {ports} bytes, netdevs {devices}, at least {need} were expected"
    if ports >= need and devices < need:
        return "rdma", text
    if ports >= need:
        return "mixed", text
    return ("tcp" if devices >= need else "unknown"), text


def _sent_bytes(counters: t.Mapping[str, Counters]) -> int:
    # A counter that was reset during the test is lower than before and is not counted.
    return sum(max(0, value.sent_bytes) for value in counters.values())


def _counter_proofs(kinds: t.Mapping[str, tuple[str, str]]) -> t.Iterator[PairProof]:
    """Yield a proof for each node. Counters do not name the other end: with more than two nodes it is all others."""
    for node, (kind, text) in kinds.items():
        others = [other for other in kinds if other != node]
        yield PairProof(node, others[0] if len(others) == 1 else ALL_OTHERS, kind, text)
