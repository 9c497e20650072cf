# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an island's collectives should reach: computed from its NICs, taken from a row, or left to peers.

The rules are derived from figures of NCCL's maintainers and users: about 12 GB/s for a 100G NIC (nccl-tests#29), 24
for 200G (#119), 46 for 400G (#290), so 0.92 of the wire; TCP reaches at most 0.6 of fast links (nccl#209, nccl#450).
"""

from __future__ import annotations

import dataclasses
import re
import statistics
import typing as t

from ....module_utils._model.expectation import GATE_PASS, Expectation, ExpectationRow, ExpectedTransport
from ....module_utils._model.island import Island
from ....module_utils._model.node import Nic, Node
from ..rails import find_rails
from .expectation_table import ROWS
from .plan import Backend

WIRE_SHARE = 0.92
# Gb/s of one PCIe lane for each generation after its line code (PCIe base specification).
_LANE_GBPS = {1: 2.0, 2: 4.0, 3: 7.877, 4: 15.754, 5: 31.508, 6: 60.5}
# What packet headers and flow control leave of it: Gen5 x4 carries just above the 97 Gb/s seen on a DGX Spark half.
_PCIE_SHARE = 0.85
# gloo uses a whole core at 6 to 8 Gb/s; measured with two ranks on loopback and on veth pairs.
_GLOO_LIMIT_GBPS = 5.0
_TCP_LIMIT_GB_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class BenchConditions:
    """An island with its nodes, and how it will be tested."""

    island: Island
    nodes: tuple[Node, ...]
    backend: Backend
    collective: str

    @property
    def gpus(self) -> int:
        """Number of GPUs of the node with the fewest."""
        return min((node.gpu.count or 0 for node in self.nodes), default=0)

    @property
    def mnnvl(self) -> bool:
        """Whether one NVLink domain joins all nodes."""
        ids = {node.gpu.fabric_id for node in self.nodes}
        return len(self.nodes) > 1 and len(ids) == 1 and None not in ids


def pcie_gbps(generation: int | None, width: int | None) -> float | None:
    """Return the Gb/s that a PCIe slot carries as payload; None when it is unknown."""
    if generation is None or width is None:
        return None
    return _LANE_GBPS.get(generation, _LANE_GBPS[6]) * width * _PCIE_SHARE


def usable_gbps(node: Node) -> tuple[float | None, list[str]]:
    """Return what the node's rails carry together in Gb/s, and what limits them.

    Functions of one PCIe device share its slot. On a DGX Spark functions with one number, such as 0000:01:00.1 and
    0002:01:00.1, are halves of one port and share that port's rate.
    """
    rails = find_rails(node)
    if rails is None or rails.rate_gbps is None:
        return None, []
    rate = rails.rate_gbps
    slots: dict[str, list[Nic]] = {}
    for nic in rails.nics:
        slots.setdefault(nic.slot, []).append(nic)
    total, reasons = 0.0, []
    for slot, nics in slots.items():
        limit = pcie_gbps(nics[0].pci_gen, nics[0].pci_width)
        line_rate = rate * len(nics)
        total += line_rate if limit is None else min(line_rate, limit)
        if limit is not None and limit < line_rate:
            reasons.append(
                f"{node.name}: PCIe gen {nics[0].pci_gen} x{nics[0].pci_width} of {slot} carries {limit:.0f} Gb/s"
            )
    if node.platform == "dgx_spark":
        ports = len({(nic.pci or nic.name).rpartition(".")[2] for nic in rails.nics})
        if ports * rate < total:
            total = ports * rate
            reasons.append(f"{node.name}: two PCIe functions are halves of one {rate:g} Gb/s port")
    return total, reasons


def _gpu_gbps(node: Node) -> float | None:
    """Return what the node's GPUs move over PCIe, Gb/s; None for an unknown slot or a GPU linked to the CPU (C2C)."""
    if re.search(r"\bG[HB][0-9]+", node.gpu.model or ""):
        return None
    slot = pcie_gbps(node.gpu.pci_gen, node.gpu.pci_width)
    return slot * node.gpu.count if slot and node.gpu.count else None


def _matches(row: ExpectationRow, conditions: BenchConditions) -> bool:
    island, first = conditions.island, conditions.nodes[0]
    link = "mnnvl" if conditions.mnnvl else island.link
    size = len(island.nodes)
    exact = (
        (row.island, island.name),
        (row.platform, first.platform),
        (row.link, link),
        (row.nic_count, island.nic_count),
        (row.nic_rate_gbps, island.nic_rate_gbps),
        (row.gpus, conditions.gpus),
        (row.nvswitch, first.gpu.nvswitch),
    )
    if row.collective != conditions.collective or not row.nodes_min <= size <= (row.nodes_max or size):
        return False
    if row.model and not all(
        re.search(rf"\b{re.escape(row.model)}\b", node.gpu.model or "") for node in conditions.nodes
    ):
        return False
    return all(expected is None or expected == actual for expected, actual in exact)


def _row_expectation(row: ExpectationRow, conditions: BenchConditions) -> Expectation:
    return Expectation(row.busbw_gb_s, "override", gate_pass=row.gate_pass or GATE_PASS, reasons=(row.source,))


def _compute_rdma(conditions: BenchConditions) -> Expectation:
    per_node = [usable_gbps(node) for node in conditions.nodes]
    reasons = list(dict.fromkeys(reason for _rate, limits in per_node for reason in limits))
    rates = [rate for rate, _unused in per_node]
    if conditions.island.nic_rate_gbps is None or any(rate is None for rate in rates):
        return Expectation(reasons=("the NICs' rate is unknown: only peers can be compared",))
    wire = min(rate for rate in rates if rate is not None)
    reasons.insert(
        0, f"{conditions.island.nic_count} x {conditions.island.nic_rate_gbps:g} Gb/s, {WIRE_SHARE} of their bandwidth"
    )
    limits = [limit for limit in map(_gpu_gbps, conditions.nodes) if limit is not None]
    if limits and min(limits) < wire:
        wire = min(limits)
        reasons.append(f"{conditions.gpus} GPU a node moves {wire:.0f} Gb/s over its own slot, less than the NICs")
    busbw = wire / 8 * WIRE_SHARE
    # Without NVLink the ring runs through PCIe inside each node, which reached 10 to 25 GB/s.
    if conditions.gpus > 1 and not all(node.gpu.nvswitch for node in conditions.nodes) and busbw > 10:
        return Expectation(
            reasons=("no NVSwitch: PCIe inside the nodes limits to 10-25 GB/s, only peers can be compared", *reasons)
        )
    return Expectation(round(busbw, 2), "computed", reasons=tuple(reasons))


def tcp_gb_s(rate_gbps: float) -> float:
    """Return what NCCL reaches over TCP on a link of ``rate_gbps``, in GB/s: close to the wire only on slow links."""
    wire = rate_gbps / 8
    share = WIRE_SHARE if rate_gbps <= 10 else 0.8 if rate_gbps <= 25 else 0.6
    return min(wire * share, _TCP_LIMIT_GB_S)


def _compute_tcp(conditions: BenchConditions) -> Expectation:
    rate = conditions.island.nic_rate_gbps
    if rate is None:
        return Expectation(reasons=("the link's rate is unknown: only peers can be compared",))
    if conditions.backend == "gloo" and rate > _GLOO_LIMIT_GBPS:
        return Expectation(
            reasons=(f"gloo is limited by the processor, not by {rate:g} Gb/s: only peers can be compared",)
        )
    return Expectation(round(tcp_gb_s(rate), 4), "computed", reasons=(f"TCP over {rate:g} Gb/s",))


def _compute(conditions: BenchConditions) -> Expectation:
    if len(conditions.nodes) == 1:
        return Expectation(reasons=("one node: NVLink or PCIe inside it, without a known figure for this hardware",))
    if conditions.mnnvl:
        return Expectation(reasons=("NVLink joins the nodes, without a known figure for this hardware",))
    if conditions.backend == "nccl" and conditions.island.rdma:
        return _compute_rdma(conditions)
    if conditions.island.link == "loopback":
        return Expectation(reasons=("one machine: no network to compute from",))
    return _compute_tcp(conditions)


def _expected_transport(conditions: BenchConditions) -> ExpectedTransport | None:
    if len(conditions.nodes) == 1:
        return None
    if conditions.backend == "gloo" or not (conditions.island.rdma or conditions.mnnvl):
        return "tcp"
    if conditions.mnnvl:
        return "mnnvl"
    return "rdma_gdr" if conditions.island.lane == "A" else "rdma_no_gdr"


def compute_expectation(
    island: Island,
    nodes: t.Iterable[Node],
    *,
    backend: Backend = "nccl",
    collective: str = "all_reduce",
    overrides: t.Iterable[ExpectationRow] = (),
) -> Expectation:
    """Return what the island should reach.

    :param nodes: the fleet or the island's nodes; others are left out.
    :param overrides: the user's rows, which precede the collection's own; a declared figure of the island itself
        (``expected_busbw_gb_s``) overrides all.
    """
    members = {node.name: node for node in nodes}
    conditions = BenchConditions(
        island, tuple(members[name] for name in island.nodes if name in members), backend, collective
    )
    if not conditions.nodes:
        return Expectation(reasons=("no facts of the island's nodes",))
    # The collection's rows were measured with NCCL; gloo never sees an RDMA port.
    rows = [*overrides, *(ROWS if backend == "nccl" else ())]
    row = next((row for row in rows if _matches(row, conditions)), None)
    if island.expected_busbw_gb_s is not None:
        result = Expectation(island.expected_busbw_gb_s, "override", reasons=("declared for this island",))
    elif row is not None:
        result = _row_expectation(row, conditions)
    elif collective != "all_reduce" and backend == "gloo":
        result = Expectation(
            reasons=(f"gloo's {collective} does not run at the speed of the link: only peers can be compared",)
        )
    else:
        result = _compute(conditions)
    two = backend == "nccl" and len(conditions.nodes) == 2
    reasons = result.reasons + (("two nodes: NCCL_ALGO=RING, other algorithms exceed the wire",) if two else ())
    return dataclasses.replace(
        result, transport=_expected_transport(conditions), algorithm="RING" if two else None, reasons=reasons
    )


def peer_expectation(own: Expectation, peers: t.Iterable[float]) -> Expectation:
    """Return ``own`` with the median of what peers of the same kind reach, when it has no figure of its own.

    Fewer than three peers cannot outvote a bad one: then the figure stays unknown.
    """
    values = sorted(peers)
    if own.busbw_gb_s is not None or len(values) < 3:
        return own
    median = round(statistics.median(values), 4)
    reason = f"median of {len(values)} measurements of the same kind"
    return dataclasses.replace(own, busbw_gb_s=median, source="peer", reasons=(*own.reasons, reason))


def with_expectation(island: Island, expected: Expectation) -> Island:
    """Return the island with its expected bandwidth filled in."""
    return dataclasses.replace(island, expected_busbw_gb_s=expected.busbw_gb_s)
