# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge what an NCCL log proves about the network between nodes.

Only channel lines prove it: all start-up lines (devices found, networks chosen, ``GPU Direct RDMA enabled``, ``use ring
PXN 0 GDR 1``) also occur in logs of jobs that used another transport. NCCL prints ``via NET`` between ranks
of one machine too when P2P and shared memory are switched off, so a line counts unless the log shows both ranks on one
machine. Verdicts: RDMA with GPUDirect on every channel, RDMA without it on some, TCP on any, both (worse than either),
multi-node NVLink, unproven.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.verdict import PairProof, TransportResult, TransportVerdict
from ..parse.nccl_channels import NetworkClass, network_class
from ..parse.nccl_log import NcclFacts
from ..parse.nccl_state import Communicator, PairCount

Gdr = t.Literal["yes", "no", "unknown"]
MAX_PROOFS = 10_000

_TCP_PROVIDERS = ("tcp", "sockets", "udp")
# From worst to best: the worst communicator decides for the whole log.
_ORDER: tuple[TransportVerdict, ...] = ("mixed", "tcp", "unproven", "rdma_no_gdr", "rdma_gdr", "mnnvl")


@dataclasses.dataclass(frozen=True, slots=True)
class DeclaredRank:
    """The host and process of a rank in the list that nccl-tests prints."""

    host: str
    pid: int


@dataclasses.dataclass(frozen=True, slots=True)
class NcclTransport:
    """The transport that a log proves. ``network`` is a name that channel lines prove (once by elimination), else None.

    ``single_node`` is true when the log shows that all ranks are on one machine; then nothing crosses a network.
    """

    network: str | None
    verdict: TransportVerdict
    gdr: Gdr
    crossing: tuple[PairCount, ...] = ()
    nodes: tuple[str, ...] = ()
    single_node: bool = False
    rank_nodes: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


class RankNodes:
    """Finds the machine of a rank of a communicator; ``""`` when the log names none, or two."""

    def __init__(self, facts: NcclFacts, declared: t.Mapping[int, DeclaredRank]) -> None:
        self._names = facts.jobs.node_names()
        self._declared = declared
        local = (pair.comm for pair in facts.jobs.pairs.values() if pair.channel.via.kind in ("p2p", "shm"))
        self._local_transport = frozenset() if _is_disabled(facts, "NCCL_SHM_DISABLE") else frozenset(local)
        self._addressed = {process.host for process in facts.jobs.processes.values() if process.address}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that wrote to the log or is in nccl-tests' list, sorted."""
        return tuple(sorted({*self._names.values(), *(place.host for place in self._declared.values())}))

    def node(self, comm: Communicator, rank: int) -> str:
        """Return the node of a rank."""
        nodes = {self._names.get((process.host, process.pid), "") for process in comm.ranks.get(rank, ())}
        if not nodes and rank in self._declared and comm.nranks in (0, len(self._declared)):
            place = self._declared[rank]
            nodes = {self._names.get((place.host, place.pid), place.host)}
        return nodes.pop() if len(nodes) == 1 else ""

    def one_machine(self, comm: Communicator, pair: PairCount) -> bool:
        """Return whether the log shows both ranks of a pair on one machine."""
        if (comm.nnodes == 1 and not comm.mnnvl) or self._one_process(comm, pair):
            return True
        first, second = self.node(comm, pair.channel.a), self.node(comm, pair.channel.b)
        if not first or first != second:
            return False
        # One host name without addresses may be two machines: then NCCL's own choice decides. It uses the network only
        # where P2P and shared memory are not possible, and one machine does not have the same GPU twice.
        if first in self._addressed or "@" in first or pair.channel.via.kind == "p2p":
            return True
        return not (pair.channel.same_device or comm.key in self._local_transport)

    @staticmethod
    def _one_process(comm: Communicator, pair: PairCount) -> bool:
        """Return whether one process, with a thread for each GPU, is both ranks."""
        first, second = (comm.ranks.get(rank, []) for rank in (pair.channel.a, pair.channel.b))
        return first == second and len(first) == 1 and bool(first[0].host) and not first[0].doubtful

    def on_one_node(self, comm: Communicator) -> bool:
        """Return whether all ranks of a communicator are known and on one machine."""
        if comm.nnodes:
            return comm.nnodes == 1 and not comm.mnnvl
        if not comm.nranks or len(comm.ranks) < comm.nranks:
            return False
        return len({self.node(comm, rank) or f"?{rank}" for rank in comm.ranks}) == 1


def read_transport(
    facts: NcclFacts, declared: t.Mapping[int, DeclaredRank], *, no_verbs: bool, table: bool
) -> NcclTransport:
    """Return the transport that a log proves.

    :param declared: rank to place from nccl-tests' list, empty when there is none.
    :param no_verbs: NCCL could not open libibverbs.
    :param table: the log also holds a table of nccl-tests, so that the job did run.
    """
    places = RankNodes(facts, declared)
    jobs = facts.jobs
    crossing = tuple(
        pair
        for pair in jobs.pairs.values()
        if _crosses_network(pair) and not places.one_machine(jobs.comms[pair.comm], pair)
    )
    ranked = [comm for comm in jobs.comms.values() if comm.ranks]
    single = bool(ranked) and not crossing and all(places.on_one_node(comm) for comm in ranked)
    if crossing:
        reading = _judge_channels(facts, crossing)
    elif single:
        reading = NcclTransport(
            None, "unproven", "unknown", notes=("all ranks are on one node: nothing crosses a network",)
        )
    else:
        reading = _judge_start_lines(facts, declared, no_verbs=no_verbs, table=table)
    if jobs.overflow:
        note = "the log names more ranks or pairs than fit into memory, so that nothing is proven"
        reading = dataclasses.replace(reading, verdict="unproven", network=None, notes=(*reading.notes, note))
    nodes_of = {(key, rank): places.node(comm, rank) for key, comm in jobs.comms.items() for rank in comm.ranks}
    notes = (*reading.notes, *_shared_rank_notes(facts))
    return dataclasses.replace(
        reading, crossing=crossing, nodes=places.nodes, single_node=single, rank_nodes=nodes_of, notes=notes
    )


def build_pair_proofs(
    reading: NcclTransport, file: str, places: t.Mapping[str, str] | None = None
) -> tuple[PairProof, ...]:
    """Return one proof per pair of nodes and network, ``a`` the sender; unknown nodes are called ``rank N``.

    :param file: name to put before the line number in the evidence.
    :param places: host name of the log to node name, where they differ.
    """
    table = places or {}
    result: dict[tuple[str, str, str, bool], PairProof] = {}
    for pair in reading.crossing:
        names = []
        for rank in (pair.channel.a, pair.channel.b):
            node = reading.rank_nodes.get((pair.comm, rank), "")
            names.append(table.get(node, node) or f"rank {rank}")
        via = pair.channel.via
        key = (names[0], names[1], via.name, via.gdr)
        if key not in result and len(result) < MAX_PROOFS:
            gdr = None if via.kind == "p2p" else via.gdr
            result[key] = PairProof(names[0], names[1], via.name, f"{file}:{pair.line}", gdr)
    return tuple(result.values())


def build_transport(reading: NcclTransport, file: str, expected: TransportVerdict | None = None) -> TransportResult:
    """Return the contract's transport value of one log."""
    return TransportResult(expected, reading.verdict, "nccl_log", build_pair_proofs(reading, file))


def is_ofi_on_tcp(facts: NcclFacts) -> bool:
    """Return whether libfabric's provider is a TCP one (the plugin's name does not change then)."""
    return bool(facts.providers) and all(name.startswith(_TCP_PROVIDERS) for name in facts.providers)


def _crosses_network(pair: PairCount) -> bool:
    via = pair.channel.via
    return via.kind == "net" or (via.kind == "p2p" and via.name == "MNNVL")


def _pair_class(facts: NcclFacts, pair: PairCount) -> NetworkClass | t.Literal["mnnvl"]:
    via = pair.channel.via
    if via.kind == "p2p":
        return "mnnvl"
    name_class = network_class(via.name)
    if name_class == "rdma" and "libfabric" in via.name.lower() and is_ofi_on_tcp(facts):
        return "tcp"
    # Only a device that reaches GPU memory gets /GDRDMA, so that an unknown plugin with it is not plain TCP.
    return "rdma" if name_class == "unknown" and via.gdr else name_class


def _judge_channels(facts: NcclFacts, crossing: t.Sequence[PairCount]) -> NcclTransport:
    groups: dict[str, list[PairCount]] = {}
    for pair in crossing:
        groups.setdefault(pair.comm, []).append(pair)
    verdicts = {key: _judge_pairs(facts, pairs) for key, pairs in groups.items()}
    worst = min(verdicts.values(), key=_ORDER.index)
    deciding = [pair for key, pairs in groups.items() if verdicts[key] == worst for pair in pairs]
    names = {pair.channel.via.name for pair in deciding if pair.channel.via.kind == "net"} or {"MNNVL"}
    notes = []
    if len(set(verdicts.values())) > 1:
        notes.append(f"communicators use different transports: {', '.join(sorted(set(verdicts.values())))}")
    if worst == "unproven":
        notes.append(
            f"network {', '.join(sorted(names))} is unknown, and the log does not show whether it is RDMA or TCP"
        )
    return NcclTransport("+".join(sorted(names)), worst, _gpudirect_use(crossing), notes=tuple(notes))


def _judge_pairs(facts: NcclFacts, pairs: t.Sequence[PairCount]) -> TransportVerdict:
    classes = {_pair_class(facts, pair) for pair in pairs}
    if "tcp" in classes:
        return "mixed" if classes & {"rdma", "unknown"} else "tcp"
    if "unknown" in classes:
        return "unproven"
    if "rdma" in classes:
        return (
            "rdma_gdr"
            if all(pair.channel.via.gdr for pair in pairs if _pair_class(facts, pair) == "rdma")
            else "rdma_no_gdr"
        )
    return "mnnvl"


def _gpudirect_use(crossing: t.Sequence[PairCount]) -> Gdr:
    """Return whether any channel between nodes has /GDRDMA; the verdict requires it on all."""
    network = [pair.channel.via for pair in crossing if pair.channel.via.kind == "net"]
    if not network:
        return "unknown"
    return "yes" if any(via.gdr for via in network) else "no"


def _judge_start_lines(
    facts: NcclFacts, declared: t.Mapping[int, DeclaredRank], *, no_verbs: bool, table: bool
) -> NcclTransport:
    """Judge a log without channel lines between nodes.

    RDMA is never proven here. TCP is proven when NCCL names it as its choice, and when nothing else is possible:
    without libibverbs and without a plugin NCCL has only sockets.
    """
    classes = {network_class(name) for name in facts.chosen}
    if is_ofi_on_tcp(facts) or classes == {"tcp"}:
        return NcclTransport(None, "tcp", "no", notes=("no channel line; NCCL reports that it chose TCP",))
    if not facts.chosen and no_verbs and not facts.providers:
        if table and len({place.host for place in declared.values()}) > 1:
            note = "libibverbs is missing and no plugin was loaded: only sockets remain, but no channel line shows them"
            return NcclTransport("Socket", "unproven", "no", notes=(note,))
        return NcclTransport(None, "tcp", "no", notes=("no channel line; without libibverbs NCCL has only sockets",))
    only_socket = not facts.chosen and facts.socket_interfaces and not facts.hcas and not facts.providers
    chosen = ", ".join(sorted(facts.chosen))
    note = f"only start-up lines name {chosen}, which does not prove a transport" if chosen else ""
    return NcclTransport(None, "unproven", "no" if only_socket else "unknown", notes=(note,) if note else ())


def _shared_rank_notes(facts: NcclFacts) -> tuple[str, ...]:
    """Return a note when several processes report one rank: the file mixes several jobs or groups."""
    for comm in facts.jobs.comms.values():
        if any(len(processes) > 1 for processes in comm.ranks.values()):
            return ("several processes report the same rank: this file mixes several jobs or groups",)
    return ()


def _is_disabled(facts: NcclFacts, name: str) -> bool:
    return facts.environment.get(name, ("0", 0))[0].strip() not in ("", "0")
