# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes for tests of the fabric rules: made from the fixture trees, or by hand for rules that need a detail."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.node import (
    Address,
    Addresses,
    Gpu,
    GpuDirect,
    Interface,
    Nic,
    Node,
)
from ansible_collections.muster.training.plugins.module_utils._node.facts import gather_facts
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node import node_trees

_gathered: dict[str, Node] = {}


def fixture_node(kind: str, name: str, number: int = 1) -> Node:
    """Return a node with the facts of a fixture tree, with a boot id and last address byte of its own."""
    if kind not in _gathered:
        with tempfile.TemporaryDirectory() as folder:
            facts = gather_facts(node_trees.expand(kind, pathlib.Path(folder)))
        _gathered[kind] = Node.from_dict({"name": kind, **facts})
    node = _gathered[kind]
    lists = {
        key: tuple(
            dataclasses.replace(item, address=item.address.rpartition(".")[0] + f".{number}")
            for item in getattr(node.addresses, key)
            if ":" not in item.address
        )
        for key in ("mesh", "lan", "public")
    }
    return dataclasses.replace(node, name=name, boot_id=f"boot-{name}", addresses=Addresses(**lists))


def rdma(count: int, rate: float | None = 400, layer: t.Any = "infiniband", **more: t.Any) -> tuple[Nic, ...]:
    """Return active RDMA ports in slots of their own."""
    return tuple(
        Nic(f"mlx5_{index}", True, layer, rate, "active", pci=f"0000:{index + 16:02x}:00.0", **more)
        for index in range(count)
    )


def node(name: str, number: int = 1, *, gbps: float | None = 10, **more: t.Any) -> Node:
    """Return a node on 10.0.0.0/24 with one interface of ``gbps``."""
    lan = (Address(f"10.0.0.{number}", "eth0", 24),)
    interfaces = (Interface("eth0", "physical", "active", 1500, gbps),)
    base: dict[str, t.Any] = {"addresses": Addresses(lan=lan), "interfaces": interfaces, "boot_id": f"boot-{name}"}
    return Node(name, **{**base, **more})


def gpu_node(name: str, number: int = 1, nics: tuple[Nic, ...] | None = None, **more: t.Any) -> Node:
    """Return an HGX H100 with eight 400G InfiniBand ports."""
    gpu = Gpu("NVIDIA H100 80GB HBM3", 8, 79.6, "hopper", 5, 16, True, False)
    base: dict[str, t.Any] = {"gpu": gpu, "gpudirect": GpuDirect(True, True, True), "nics": nics or rdma(8)}
    return node(name, number, **{**base, **more})
