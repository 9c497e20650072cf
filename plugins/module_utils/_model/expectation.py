# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bus bandwidth that an island's collectives should reach, and the source of that figure."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f

Source = t.Literal["computed", "override", "peer"]
ExpectedTransport = t.Literal["rdma_gdr", "rdma_no_gdr", "tcp", "mnnvl"]
SOURCES: tuple[str, ...] = t.get_args(Source)
TRANSPORTS: tuple[str, ...] = t.get_args(ExpectedTransport)

# Below these shares of the expectation a result warns, and fails.
GATE_PASS = 0.85
GATE_FAIL = 0.70


@dataclasses.dataclass(frozen=True, slots=True)
class Expectation:
    """The bus bandwidth (GB/s of 1e9 bytes) that an island should reach; None when only peers can tell.

    A ratio of at least ``gate_pass`` passes, below ``gate_fail`` it fails, between them it warns. ``algorithm`` is
    the NCCL_ALGO that verification, never a job, must set so that the figure means the network.
    """

    busbw_gb_s: float | None = f.field(f.decimal(0), None)
    source: Source = f.field(f.choice(*SOURCES), "peer")
    transport: ExpectedTransport | None = f.field(f.choice(*TRANSPORTS), None)
    gate_pass: float = f.field(f.decimal(0), GATE_PASS)
    gate_fail: float = f.field(f.decimal(0), GATE_FAIL)
    algorithm: str | None = f.field(f.text, None)
    reasons: tuple[str, ...] = f.field(f.list_of(f.text), ())

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "expectation") -> Expectation:
        """Return the expectation in ``value``; raise InputError with the dotted path of what cannot be read."""
        return f.section(cls, "skip")(value, path)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the expectation as JSON types."""
        return t.cast("dict[str, t.Any]", f.plain_value(self))


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectationRow:
    """One measured figure for known hardware; it replaces the computed one where every field that is set matches.

    ``model`` is matched as words within the GPU's name. ``nodes_min`` and ``nodes_max`` bound the island's size.
    ``source`` says who measured it, so that a reader can judge it.
    """

    busbw_gb_s: float = f.field(f.decimal(0))
    source: str = f.field(f.text)
    model: str | None = f.field(f.text, None)
    platform: str | None = f.field(f.text, None)
    link: str | None = f.field(f.choice("ib", "roce", "ethernet", "mesh", "loopback", "mnnvl"), None)
    nic_count: int | None = f.field(f.integer(0, 1024), None)
    nic_rate_gbps: float | None = f.field(f.decimal(0), None)
    gpus: int | None = f.field(f.integer(0, 1024), None)
    nvswitch: bool | None = f.field(f.boolean, None)
    nodes_min: int = f.field(f.integer(1), 1)
    nodes_max: int | None = f.field(f.integer(1), None)
    island: str | None = f.field(f.text, None)
    collective: str = f.field(f.choice("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), "all_reduce")
    gate_pass: float | None = f.field(f.decimal(0), None)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "fabric_verify_expectations") -> ExpectationRow:
        """Return the row in ``value``; a misspelt key is refused: it would silently do nothing."""
        return f.section(cls)(value, path)
