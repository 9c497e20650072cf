# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA ports of a node that carry collectives (its rails). Pure rules on a node's facts."""

from __future__ import annotations

import dataclasses

from ...module_utils._model.island import Link
from ...module_utils._model.node import Nic, Node


@dataclasses.dataclass(frozen=True, slots=True)
class Rails:
    """The RDMA ports of one node that carry collectives: those of the kind with the most bandwidth in total."""

    link: Link
    rate_gbps: float | None
    nics: tuple[Nic, ...]

    @property
    def count(self) -> int:
        return len(self.nics)

    def describe(self) -> str:
        """Return such as ``8 x 400 Gb/s ib``."""
        rate = f"{self.rate_gbps:g} Gb/s" if self.rate_gbps is not None else "unknown rate"
        return f"{self.count} x {rate} {self.link}"


def find_rails(node: Node) -> Rails | None:
    """Return the node's RDMA ports for collectives; None without an active one.

    Slower RDMA ports, often for storage or management, are of another kind and are not counted.
    """
    kinds: dict[tuple[Link, float | None], list[Nic]] = {}
    for nic in node.nics:
        if nic.rdma and nic.active and nic.link_layer:
            link: Link = "ib" if nic.link_layer == "infiniband" else "roce"
            kinds.setdefault((link, nic.rate_gbps), []).append(nic)
    if not kinds:
        return None
    (link, rate), nics = max(kinds.items(), key=lambda item: ((item[0][1] or 0) * len(item[1]), item[0][0]))
    return Rails(link, rate, tuple(nics))
