# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of an island's nodes that their facts show before any test.

A NIC whose PCIe link is narrower or slower than possible also lowers the computed expectation, so that the measurement
would pass although the NIC is slow.
"""

from __future__ import annotations

import typing as t

from ....module_utils._model.island import Island
from ....module_utils._model.node import Nic, Node
from ....module_utils._model.verdict import Cause
from ..bench.expectation import pcie_gbps
from ..rails import find_rails

PCIE_DEGRADED = "pcie_degraded"
_FIX = "Reseat card and riser, check BIOS bifurcation and firmware; declare the bandwidth if the slot is built so"


def find_node_faults(island: Island, nodes: t.Iterable[Node]) -> tuple[Cause, ...]:
    """Return a cause for each NIC of the island's rails whose PCIe link is below what card and slot can carry."""
    if not island.rdma:
        return ()
    causes = []
    for node in (node for node in nodes if node.name in island.nodes):
        rails = find_rails(node)
        # Each port of a DGX Spark is two functions with four lanes by design.
        for nic in rails.nics if rails and node.platform != "dgx_spark" else ():
            if _is_degraded(nic):
                now, best = f"gen {nic.pci_gen} x{nic.pci_width}", f"gen {nic.pci_gen_max} x{nic.pci_width_max}"
                text = f"{nic.name} runs at PCIe {now}, {best} is possible, and its link needs {nic.rate_gbps:g} Gb/s"
                causes.append(Cause(PCIE_DEGRADED, text, _FIX, node.name))
    return tuple(causes)


def _is_degraded(nic: Nic) -> bool:
    now, best = pcie_gbps(nic.pci_gen, nic.pci_width), pcie_gbps(nic.pci_gen_max, nic.pci_width_max)
    if now is None or best is None or nic.rate_gbps is None:
        return False
    return now < nic.rate_gbps and now < best
