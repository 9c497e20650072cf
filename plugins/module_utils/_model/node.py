# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node record: the data of an inventory about a machine, and the facts that ``node_info`` read on it.

Unknown is None. ``from_dict`` ignores keys that are not fields, so that facts may grow; the value of a field that
cannot be read is refused with its path.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f

Ownership = t.Literal["owned", "rented", "managed"]
NodeKind = t.Literal["vm", "container", "baremetal", "cluster"]
NodeState = t.Literal["creating", "running", "stopped", "offline", "failed", "gone", "unknown"]
NetworkType = t.Literal["mesh", "lan", "public"]
LinkLayer = t.Literal["infiniband", "ethernet"]
MeshPath = t.Literal["direct", "relayed", "none"]


def optional_text(value: t.Any, path: str) -> str | None:
    """Return text, or None for an empty one: providers write ``""`` for an unknown value."""
    return None if value == "" else f.text(value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """One address of a node; the interface that owns it and the length of its prefix where known."""

    address: str = f.field(f.text)
    interface: str | None = f.field(f.text, None)
    prefix: int | None = f.field(f.integer(0, 128), None)


def _parse_address(value: t.Any, path: str) -> Address:
    return Address(f.text(value, path)) if isinstance(value, str) else f.section(Address, "skip")(value, path)


def _parse_addresses(value: t.Any, path: str) -> tuple[Address, ...]:
    """A list of addresses, or a single one as people write it in an inventory."""
    if value == "":
        return ()
    return f.list_of(_parse_address)([value] if isinstance(value, (str, t.Mapping)) else value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses by the network they belong to."""

    mesh: tuple[Address, ...] = f.field(_parse_addresses, ())
    lan: tuple[Address, ...] = f.field(_parse_addresses, ())
    public: tuple[Address, ...] = f.field(_parse_addresses, ())


@dataclasses.dataclass(frozen=True, slots=True)
class Ssh:
    """The SSH address of the node for a controller."""

    host: str | None = f.field(optional_text, None)
    port: int | None = f.field(f.integer(1, 65535), None)
    user: str | None = f.field(optional_text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """The GPUs of one node, which are alike. ``pci_gen`` and ``pci_width`` are those of the slowest slot.

    ``nvswitch``: all GPUs of the node are joined by NVSwitch. ``unified_memory``: CPU and GPU share one memory.
    ``fabric_id``: NVLink domain that spans nodes (cluster UUID and clique, MNNVL).
    """

    model: str | None = f.field(optional_text, None)
    count: int | None = f.field(f.integer(0, 1024), None)
    memory_gib: float | None = f.field(f.decimal(0), None)
    arch: str | None = f.field(optional_text, None)
    pci_gen: int | None = f.field(f.integer(1, 9), None)
    pci_width: int | None = f.field(f.integer(1, 32), None)
    nvswitch: bool | None = f.field(f.boolean, None)
    unified_memory: bool | None = f.field(f.boolean, None)
    fabric_id: str | None = f.field(optional_text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class GpuDirect:
    """Whether NICs can read GPU memory; ``supported`` is the sum of the others and of the platform's exceptions."""

    supported: bool | None = f.field(f.boolean, None)
    peermem: bool | None = f.field(f.boolean, None)
    dmabuf: bool | None = f.field(f.boolean, None)
    reason: str | None = f.field(optional_text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Cpu:
    count: int | None = f.field(f.integer(0), None)
    arch: str | None = f.field(optional_text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """The cluster and pool that rented the machine, and its lease's token; all None for one that is not rented."""

    cluster: str | None = f.field(optional_text, None)
    pool: str | None = f.field(optional_text, None)
    token: str | None = f.field(optional_text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class K3s:
    """Whether K3s can run on the node, and why not."""

    capable: bool | None = f.field(f.boolean, None)
    reasons: tuple[str, ...] = f.field(f.list_of(f.text), ())


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """One port of an RDMA device, or one network card without RDMA (then ``rdma`` is false).

    ``rate_gbps`` is the link's, in Gb/s. PCI figures are of the slot as it runs now; ``pci`` is its address
    (domain:bus:device.function). ``subnet`` is the InfiniBand subnet prefix in hexadecimal.
    """

    name: str = f.field(f.text)
    rdma: bool = f.field(f.boolean, False)
    link_layer: LinkLayer | None = f.field(f.choice("infiniband", "ethernet"), None)
    rate_gbps: float | None = f.field(f.decimal(0), None)
    state: str | None = f.field(optional_text, None)
    mtu: int | None = f.field(f.integer(0), None)
    netdev: str | None = f.field(optional_text, None)
    port: int | None = f.field(f.integer(0), None)
    pci: str | None = f.field(optional_text, None)
    pci_gen: int | None = f.field(f.integer(1, 9), None)
    pci_width: int | None = f.field(f.integer(1, 32), None)
    pci_gen_max: int | None = f.field(f.integer(1, 9), None)
    pci_width_max: int | None = f.field(f.integer(1, 32), None)
    numa: int | None = f.field(f.integer(0), None)
    subnet: str | None = f.field(optional_text, None)
    gid_types: tuple[str, ...] = f.field(f.list_of(f.text), ())

    @property
    def active(self) -> bool:
        """Return whether the link carries data now."""
        return self.state == "active"

    @property
    def slot(self) -> str:
        """Return the PCI device without its function: functions of one device share its lanes."""
        return self.pci.rpartition(".")[0] if self.pci else self.name


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """One network interface with an address; ``speed_gbps`` is None where the driver does not say (most VMs)."""

    name: str = f.field(f.text)
    kind: str | None = f.field(optional_text, None)
    state: str | None = f.field(optional_text, None)
    mtu: int | None = f.field(f.integer(0), None)
    speed_gbps: float | None = f.field(f.decimal(0), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver; ``flavour`` tells open from proprietary kernel modules."""

    version: str | None = f.field(optional_text, None)
    flavour: str | None = f.field(f.choice("open", "proprietary"), None)


def _parse_driver(value: t.Any, path: str) -> Driver:
    return Driver(optional_text(value, path)) if isinstance(value, str) else f.section(Driver, "skip")(value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """The record of one node (hostvar ``muster_node``), with the facts of ``node_info`` where it has run.

    ``boot_id`` is the kernel's: nodes that share it are containers or namespaces of one machine.
    ``platform`` names machines that need rules of their own (``dgx_spark``, ``hgx``), ``topology_file`` the file on the
    node from which NCCL reads what a virtual machine does not see of its PCIe. ``fabric_hint`` is the
    provider's id of a LAN or InfiniBand domain.
    """

    name: str = f.field(f.text)
    id: str | None = f.field(optional_text, None)
    ownership: Ownership | None = f.field(f.choice(*t.get_args(Ownership)), None)
    provider: str | None = f.field(optional_text, None)
    account: str | None = f.field(optional_text, None)
    product: str | None = f.field(optional_text, None)
    kind: NodeKind | None = f.field(f.choice(*t.get_args(NodeKind)), None)
    state: NodeState = f.field(f.choice(*t.get_args(NodeState)), "unknown")
    region: str | None = f.field(optional_text, None)
    site: str | None = f.field(optional_text, None)
    preemptible: bool | None = f.field(f.boolean, None)
    ssh: Ssh = f.field(f.section(Ssh, "skip"), Ssh())
    addresses: Addresses = f.field(f.section(Addresses, "skip"), Addresses())
    network_types: tuple[NetworkType, ...] = f.field(f.list_of(f.choice("mesh", "lan", "public")), ())
    gpu: Gpu = f.field(f.section(Gpu, "skip"), Gpu())
    cpu: Cpu = f.field(f.section(Cpu, "skip"), Cpu())
    memory_gib: float | None = f.field(f.decimal(0), None)
    price_usd_per_hour: float | None = f.field(f.decimal(0), None)
    owner: Owner = f.field(f.section(Owner, "skip"), Owner())
    created_at: str | None = f.field(optional_text, None)
    fabric_hint: str | None = f.field(optional_text, None)
    k3s: K3s = f.field(f.section(K3s, "skip"), K3s())
    nics: tuple[Nic, ...] = f.field(f.list_of(f.section(Nic, "skip")), ())
    interfaces: tuple[Interface, ...] = f.field(f.list_of(f.section(Interface, "skip")), ())
    driver: Driver = f.field(_parse_driver, Driver())
    kernel: str | None = f.field(optional_text, None)
    limits: t.Mapping[str, t.Any] = f.field(f.dictionary, {})
    clock_skew_s: float | None = f.field(f.decimal(-1e12), None)
    mesh_path: MeshPath | None = f.field(f.choice(*t.get_args(MeshPath)), None)
    boot_id: str | None = f.field(optional_text, None)
    platform: str | None = f.field(optional_text, None)
    topology_file: str | None = f.field(optional_text, None)
    gpudirect: GpuDirect = f.field(f.section(GpuDirect, "skip"), GpuDirect())

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "muster_node") -> Node:
        """Return the record in ``value``; raise InputError with the dotted path of what cannot be read."""
        return f.section(cls, "skip")(value, path)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the record as JSON types, every key present."""
        return t.cast("dict[str, t.Any]", f.plain_value(self))

    def interface(self, name: str | None) -> Interface | None:
        """Return the interface named ``name``, None without one."""
        return next((item for item in self.interfaces if item.name == name), None)
