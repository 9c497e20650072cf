# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preflight shows of all machines together: a table with one line a machine, and the link between DGX Sparks."""

from __future__ import annotations

import typing as t

from ...module_utils._model.node import Node
from ...module_utils._model.verdict import Cause
from .._fabric.bench.nccl_environment import find_collective_interface
from .._fabric.rails import find_rails
from .._fabric.topology.islands import find_islands
from .._fabric.verdict.spark_pair import REFUSED, find_pair_faults, is_spark

_COLUMNS = ("name", "CPU", "RAM", "GPU", "VRAM", "NICs", "mesh", "K3s", "price")
_UNKNOWN = "-"


def build_table(records: t.Sequence[t.Mapping[str, t.Any]], k3s: bool = True) -> list[str]:
    """Return the lines of the table: a header, one line a record, and the sums of what is known.

    :param records: values of ``muster_node``.
    :param k3s: whether to say which machines K3s can run on.
    :raises InputError: naming the field of a record that cannot be read.
    """
    nodes = [Node.from_dict(record, f"nodes[{index}]") for index, record in enumerate(records)]
    kept = [index for index, column in enumerate(_COLUMNS) if k3s or column != "K3s"]
    rows = [[row[index] for index in kept] for row in (_COLUMNS, *map(_row, nodes))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, _sum(nodes)]


def check_link(
    records: t.Sequence[t.Mapping[str, t.Any]], addresses: t.Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Return ``{problems, notes}``, a line each, on the link between DGX Sparks: problems are for a refusal.

    :param addresses: by node, the address that the user declared for it.
    """
    sparks = [node for node in (Node.from_dict(record) for record in records) if is_spark(node)]
    interfaces = {
        node.name: find_collective_interface(node, island, sparks, (addresses or {}).get(node.name))
        for island in find_islands(sparks)
        if len(island.nodes) > 1
        for node in sparks
        if node.name in island.nodes
    }
    causes = find_pair_faults(sparks, interfaces)
    return {
        "problems": [_describe(cause) for cause in causes if cause.code in REFUSED],
        "notes": [_describe(cause) for cause in causes if cause.code not in REFUSED],
    }


def _describe(cause: Cause) -> str:
    return f"{f'{cause.node}: ' if cause.node else ''}{cause.code}: {cause.evidence}. {cause.fix}"


def _row(node: Node) -> tuple[str, ...]:
    gpu, cpu = node.gpu, node.cpu
    model = f" {gpu.model}" if gpu.model else ""
    cells = (
        node.name,
        None if cpu.count is None else f"{cpu.count}{f' {cpu.arch}' if cpu.arch else ''}",
        _gib(node.memory_gib),
        None if gpu.count is None else "none" if gpu.count == 0 else f"{gpu.count} x{model or ' GPU'}",
        _gib(gpu.memory_gib),
        _describe_nics(node),
        node.mesh_path or ("unknown" if node.addresses.mesh else None),
        _describe_k3s(node),
        None if node.price_usd_per_hour is None else f"{node.price_usd_per_hour:g} USD/h",
    )
    return tuple(cell or _UNKNOWN for cell in cells)


def _gib(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g} GiB" if value < 1000 else f"{value:.0f} GiB"


def _describe_nics(node: Node) -> str | None:
    """Return the ports that carry collectives, else the fastest network card."""
    rails = find_rails(node)
    if rails:
        return rails.describe()
    active = [nic for nic in node.nics if nic.active]
    if not active:
        return None
    rates = [nic.rate_gbps for nic in active if nic.rate_gbps]
    return f"{len(active)} x {f'{max(rates):g} Gb/s ' if rates else ''}ethernet"


def _describe_k3s(node: Node) -> str | None:
    if node.k3s.capable is None:
        return None
    return "yes" if node.k3s.capable else f"no: {'; '.join(node.k3s.reasons) or 'reason unknown'}"


def _sum(nodes: t.Sequence[Node]) -> str:
    gpus = sum(node.gpu.count or 0 for node in nodes)
    prices = [node.price_usd_per_hour for node in nodes if node.price_usd_per_hour is not None]
    missing = "" if len(prices) == len(nodes) else f", the price of {len(nodes) - len(prices)} unknown"
    return f"{len(nodes)} machines, {gpus} GPUs, {sum(prices):g} USD/h{missing}"
