# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transport proven without NCCL's log: by the sockets of gloo's ranks, or by the byte counters of NICs.

gloo prints no channel lines. Its proof is a connection of which both ends belong to ranks of the job, with the
interface that owns the end, and that interface's byte counters, which must have moved at least half of what the
collectives had to send. RDMA ports count their bytes in hardware and netdevs do not count RDMA, so that the difference
of both tells which of them carried the traffic, but never whether GPUDirect did.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.verdict import Cause, PairProof, TransportProof, TransportVerdict
from ..bench.result import BenchResult, Counters, RankEvidence, SocketEnd
from ..diagnosis.causes import CAUSES

# What must cross a node's NIC at least, per byte of the collective's size and for N nodes (nccl-tests PERFORMANCE.md:
# the lower bounds behind busbw): all-reduce 2(N-1)/N, the others (N-1)/N.
_TWICE = "all_reduce"
# Counters of one test also hold other traffic and miss what was sent before the first look: half is far from both.
SHARE = 0.5
# gloo connects every pair and uses some: a connection with less than this part of the traffic carried none of it.
IDLE_PART = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What was proven, the causes found on the way, and for each thing that is not proven one sentence."""

    transport: TransportProof
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
) -> Seen:
    """Return the transport of a gloo test.

    :param interfaces: node to the interface that its traffic should use; another one is the cause ``wrong_interface``.
    """
    names = {item.rank: _node(item) for item in result.evidence}
    need = needed_bytes(result, len(set(names.values())))
    pairs: dict[tuple[str, str, str], PairProof] = {}
    causes: dict[tuple[str, str], Cause] = {}
    reasons: list[str] = []
    for item in result.evidence:
        node = names[item.rank]
        for end in item.sockets:
            other = names.get(end.peer_rank) if end.peer_rank is not None else None
            idle = end.carried is not None and end.carried * IDLE_PART < need
            if other is None or other == node or idle:
                continue
            moved, problem = _moved(item, end, need)
            if problem:
                reasons.append(f"{node} to {other}: {problem}")
                continue
            via = end.interface or ""
            pairs.setdefault((node, other, via), PairProof(node, other, via, moved))
            wanted = (interfaces or {}).get(node)
            if wanted and wanted != via:
                causes[node, via] = _wrong_interface(node, via, wanted, end)
    verdict: TransportVerdict = "tcp" if pairs else "unproven"
    transport = TransportProof(expected, verdict, "socket_peers_and_netdev_counters", tuple(pairs.values()))
    if not pairs and not reasons:
        reasons.append("no connection between ranks of different nodes was seen")
    return Seen(transport, tuple(causes.values()), tuple(dict.fromkeys(reasons)))


def read_counters(result: BenchResult, expected: TransportVerdict | None = None) -> Seen:
    """Return the transport of an NCCL test whose log is not at hand, from RDMA ports' and netdevs' byte counters."""
    nodes: dict[str, RankEvidence] = {}
    for item in result.evidence:
        nodes.setdefault(_node(item), item)
    need = needed_bytes(result, len(nodes))
    kinds: dict[str, tuple[str, str]] = {}
    for node, item in nodes.items():
        kinds[node] = _carrier(item, need)
    found = {kind for kind, _text in kinds.values()}
    verdict: TransportVerdict = "unproven"
    if need and found <= {"rdma", "tcp", "mixed"}:
        verdict = "mixed" if len(found) > 1 or "mixed" in found else "tcp" if found == {"tcp"} else "rdma_no_gdr"
    reasons = [f"{node}: {text}" for node, (kind, text) in kinds.items() if kind == "unknown"]
    if verdict == "rdma_no_gdr":
        reasons.append("counters show RDMA, not whether GPUDirect was used")
    pairs = tuple(_counter_pairs(kinds)) if verdict != "unproven" else ()
    return Seen(TransportProof(expected, verdict, "rdma_counters", pairs), (), tuple(reasons))


def _node(item: RankEvidence) -> str:
    return item.node or item.host or f"rank {item.rank}"


def _moved(item: RankEvidence, end: SocketEnd, need: int) -> tuple[str, str]:
    """Return (evidence, "") when the interface of a connection moved enough, else ("", what is lacking)."""
    if not end.interface:
        return "", f"no interface owns the local address {end.local}"
    counters = item.netdev.get(end.interface)
    if counters is None:
        return "", f"no byte counter of {end.interface} was read"
    least = min(counters.sent, counters.received)
    if least < max(need, 1):
        return "", f"{end.interface} moved {max(least, 0)} bytes, at least {need} were to be sent"
    own = f", {end.tx_bytes[1] - end.tx_bytes[0]} of them on this connection" if end.tx_bytes else ""
    return f"{end.local} to {end.peer}; {end.interface} sent {counters.sent} bytes{own}", ""


def _wrong_interface(node: str, via: str, wanted: str, end: SocketEnd) -> Cause:
    evidence = f"{node}: connection {end.local} to {end.peer} is on {via}, {wanted} was expected"
    return Cause("wrong_interface", evidence, CAUSES["wrong_interface"].fix, node)


def _carrier(item: RankEvidence, need: int) -> tuple[str, str]:
    """Return what carried a node's traffic (rdma, tcp, mixed, unknown) and the counters in words."""
    ports = _sent(item.rdma)
    devices = _sent({name: value for name, value in item.netdev.items() if name != "lo"})
    text = f"RDMA ports sent {ports} bytes, netdevs {devices}, at least {need} were to be sent"
    if ports >= need and devices < need:
        return "rdma", text
    if ports >= need:
        return "mixed", text
    return ("tcp" if devices >= need else "unknown"), text


def _sent(counters: t.Mapping[str, Counters]) -> int:
    # A counter that was reset during the test reads as less than before and says nothing.
    return sum(max(0, value.sent) for value in counters.values())


def _counter_pairs(kinds: t.Mapping[str, tuple[str, str]]) -> t.Iterator[PairProof]:
    """Counters belong to a node, not to a pair; of two nodes the other end is known, of more it is all the others."""
    for node, (kind, text) in kinds.items():
        others = [other for other in kinds if other != node]
        yield PairProof(node, others[0] if len(others) == 1 else "all others", kind, text)
