# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Islands: nodes that may share one synchronous job, and the network paths between nodes."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f

Lane = t.Literal["A", "B", "C", "D", "E"]
Link = t.Literal["ib", "roce", "ethernet", "mesh", "loopback"]
NetworkPath = t.Literal["lan", "mesh_direct", "mesh_relayed", "none"]
LANES: tuple[str, ...] = t.get_args(Lane)
LINKS: tuple[str, ...] = t.get_args(Link)
PATHS: tuple[str, ...] = t.get_args(NetworkPath)


@dataclasses.dataclass(frozen=True, slots=True)
class PairPath:
    """The network path between nodes ``a`` and ``b``, measured from ``a``; the pair has no order.

    ``rate_gbps`` is a measured or declared rate of that path in Gb/s.
    """

    a: str = f.field(f.text)
    b: str = f.field(f.text)
    path: NetworkPath = f.field(f.choice(*PATHS))
    rate_gbps: float | None = f.field(f.decimal(0), None)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "reachability") -> PairPath:
        """Return the path in ``value``; raise InputError with the dotted path of the field that is wrong."""
        return f.section(cls, "skip")(value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class IslandOverride:
    """An island that the user declares: its nodes belong together, and its values replace those of the rules.

    ``reason`` is shown beside the result, so that a reader knows that a person decided.
    """

    nodes: tuple[str, ...] = f.field(f.list_of(f.text))
    name: str | None = f.field(f.name(40), None)
    lane: Lane | None = f.field(f.choice(*LANES), None)
    link: Link | None = f.field(f.choice(*LINKS), None)
    nic_count: int | None = f.field(f.integer(0, 1024), None)
    nic_rate_gbps: float | None = f.field(f.decimal(0), None)
    expected_busbw_gb_s: float | None = f.field(f.decimal(0), None)
    reason: str | None = f.field(f.text, None)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "fabric_verify_islands") -> IslandOverride:
        """Return the override in ``value``; a misspelt key is refused: it would silently do nothing."""
        return f.section(cls)(value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class Island:
    """Nodes that may share one synchronous job.

    Lane A is RDMA with GPUDirect, B RDMA, C TCP on a LAN or inside one machine, D a mesh or the open network, E a
    relay. ``nic_count`` and ``nic_rate_gbps`` (Gb/s) are of one node's NICs that the job's collectives use.
    """

    name: str = f.field(f.text)
    nodes: tuple[str, ...] = f.field(f.list_of(f.text))
    lane: Lane = f.field(f.choice(*LANES))
    link: Link = f.field(f.choice(*LINKS))
    nic_count: int | None = f.field(f.integer(0, 1024), None)
    nic_rate_gbps: float | None = f.field(f.decimal(0), None)
    expected_busbw_gb_s: float | None = f.field(f.decimal(0), None)
    reasons: tuple[str, ...] = f.field(f.list_of(f.text), ())

    @property
    def rdma(self) -> bool:
        """Return whether its collectives travel by RDMA."""
        return self.link in ("ib", "roce")

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "island") -> Island:
        """Return the island in ``value``; raise InputError with the dotted path of what cannot be read."""
        return f.section(cls, "skip")(value, path)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the island as JSON types."""
        return t.cast("dict[str, t.Any]", f.plain_value(self))
