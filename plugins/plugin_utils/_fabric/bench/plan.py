# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to measure on an island, as values: stages of groups of nodes, with sizes, seconds and limits.

Stages: inside every node; every pair of at most eight nodes, or ring neighbours of more; the whole island; each rail
alone when the whole falls short. A bad node among many is then found by halving (see ``bisect_nodes``).
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.island import Island
from ....module_utils._model.node import Node

MIB = 1 << 20
GIB = 1 << 30
ALL_PAIRS_LIMIT = 8
# Of a size's time budget, what one run of it may take: an all-reduce of two nodes sends its size once.
_SHARE = 0.7
StageName = t.Literal["inside", "pairs", "neighbours", "island", "rails", "halves"]
Backend = t.Literal["nccl", "gloo"]
Group = tuple[str, ...]
Round = tuple[Group, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class BenchStage:
    """One step of a plan. Groups of one round share no node and run at once; rounds run one after another.

    ``sizes`` are bytes of a rank's buffer, ``seconds`` the budget of one size, ``timeout_s`` the time after which the
    processes of a group are killed: hanging is how a bad fabric fails. ``environment`` is for verification only.
    ``only_if_short`` stages run when the island fell below its gate. With ``split_mod`` only ranks of one number modulo
    it communicate: with one process a GPU, each such group uses one rail. A result below ``expected_gb_s`` is measured
    again by the bench itself, because other load may pass.
    """

    name: StageName
    rounds: tuple[Round, ...]
    processes_per_node: int
    sizes: tuple[int, ...]
    seconds: float
    timeout_s: float
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    only_if_short: bool = False
    split_mod: int = 0
    expected_gb_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BenchPlan:
    """The stages for one island, in the order in which they run."""

    island: str
    backend: Backend
    collective: str
    stages: tuple[BenchStage, ...]


def largest_size(nodes: t.Iterable[Node], processes_per_node: int) -> int:
    """Return the bytes a rank's buffer may have: a quarter of the memory it gets on the smallest node.

    Where CPU and GPU share one memory, never more than 1 GiB: filling it freezes the machine (dgx-spark-playbooks
    PR 103). Unknown memory counts as 4 GiB a rank.
    """
    limits = []
    for node in nodes:
        gpu = node.gpu.memory_gib if node.gpu.count else None
        host = node.memory_gib / max(1, processes_per_node) if node.memory_gib else None
        memories = [value for value in ((gpu,) if gpu and not node.gpu.unified_memory else (gpu, host)) if value]
        share = min(memories, default=4.0) / 4
        limits.append(int(min(share, 1.0) * GIB) if node.gpu.unified_memory else int(share * GIB))
    return min(limits, default=GIB)


def choose_sizes(
    island: Island, nodes: t.Iterable[Node], backend: Backend, processes_per_node: int, seconds: float = 0.6
) -> tuple[int, ...]:
    """Return a warm-up size and the one that is judged, as powers of two.

    1 GiB over RDMA, 64 MiB over TCP, 32 MiB for gloo; less on links so slow that the budget would not hold two runs.
    """
    preferred = 32 * MIB if backend == "gloo" else GIB if island.rdma or len(island.nodes) == 1 else 64 * MIB
    limits = [preferred, largest_size(nodes, processes_per_node)]
    if not island.rdma and island.nic_rate_gbps:
        limits.append(int(island.nic_rate_gbps * 1e9 / 8 * seconds * _SHARE))
    top = 1 << max(16, min(limits).bit_length() - 1)
    return (top // 8, top)


def rounds_of_pairs(names: t.Sequence[str]) -> tuple[Round, ...]:
    """Return every pair once, in rounds whose pairs share no node (circle method of round-robin tournaments)."""
    seats: list[str | None] = [*sorted(names)]
    if len(seats) % 2:
        seats.append(None)
    rounds = []
    for _unused in range(len(seats) - 1):
        pairs = [(seats[i], seats[-1 - i]) for i in range(len(seats) // 2)]
        rounds.append(tuple(tuple(sorted((a, b))) for a, b in pairs if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(rounds)


def rounds_of_neighbours(names: t.Sequence[str]) -> tuple[Round, ...]:
    """Return the pairs of neighbours on a ring, in two rounds (three for an odd number) without shared nodes."""
    ring = sorted(names)
    pairs = [(ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring))]
    even, odd = tuple(pairs[0:-1:2]), tuple(pairs[1::2])
    return (even, odd) if len(ring) % 2 == 0 else (even, odd, (pairs[-1],))


def _serial_rounds(rounds: t.Iterable[Round]) -> tuple[Round, ...]:
    return tuple((group,) for groups in rounds for group in groups)


def count_processes(members: t.Iterable[Node], backend: Backend) -> int:
    """Return the ranks of a test on each of ``members``: one for each GPU that all of them have, with gloo one."""
    gpus = min((node.gpu.count or 0 for node in members), default=0)
    return max(1, gpus) if backend == "nccl" else 1


def build_bench_plan(
    island: Island,
    nodes: t.Iterable[Node],
    *,
    backend: Backend,
    collective: str = "all_reduce",
    seconds: float = 0.6,
    timeout_s: float = 60.0,
) -> BenchPlan:
    """Return what to measure on ``island``. ``timeout_s`` is for each group of a stage, start-up included.

    Two nodes are tested as an island at once, with NCCL_ALGO=RING: other algorithms exceed the wire there.
    """
    members = [node for node in nodes if node.name in island.nodes]
    processes = count_processes(members, backend)
    sizes = choose_sizes(island, members, backend, processes, seconds)

    ring = {"NCCL_ALGO": "RING"} if backend == "nccl" else {}
    inside = BenchStage("inside", (tuple((name,) for name in island.nodes),), processes, sizes, seconds, timeout_s)
    ring_stage = dataclasses.replace(inside, environment=ring, expected_gb_s=island.expected_busbw_gb_s)
    stages = [inside] if processes > 1 else []
    if len(island.nodes) > 2:
        stages.append(_plan_links(island, ring_stage))
    if len(island.nodes) > 1:
        environment = ring if len(island.nodes) == 2 else {}
        whole = dataclasses.replace(ring_stage, name="island", rounds=((island.nodes,),), environment=environment)
        stages.append(whole)
        if backend == "nccl" and processes > 1 and (island.nic_count or 0) > 1:
            rails = dataclasses.replace(ring_stage, name="rails", rounds=((island.nodes,),), expected_gb_s=None)
            stages.append(dataclasses.replace(rails, only_if_short=True, split_mod=processes))
    return BenchPlan(island.name, backend, collective, tuple(stages))


def _plan_links(island: Island, stage: BenchStage) -> BenchStage:
    """Return the stage that measures nodes two by two: all pairs of few nodes, of many the neighbours on a ring."""
    few = len(island.nodes) <= ALL_PAIRS_LIMIT
    rounds = rounds_of_pairs(island.nodes) if few else rounds_of_neighbours(island.nodes)
    # Nodes of one machine share its processors: at once they would measure each other.
    rounds = _serial_rounds(rounds) if island.link == "loopback" else rounds
    return dataclasses.replace(stage, name="pairs" if few else "neighbours", rounds=rounds)
