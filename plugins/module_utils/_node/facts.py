# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All facts of one node in one pass (``node_info``), as JSON types; names as in the node record."""

from __future__ import annotations

import os
import sys
import time
import typing as t

from . import facts_cluster, facts_gpu, facts_host, facts_net, facts_pci, facts_rdma
from .facts_source import FactsSource

SCHEMA = 1
UNKNOWN_GPU: t.Mapping[str, t.Any] = {
    "gpu": {"model": None, "count": None, "memory_gib": None, "arch": None, "devices": []},
    "driver": {"version": None, "flavour": None},
    "gpudirect": {"supported": None, "peermem": None, "dmabuf": None, "reason": None},
    "acs": {"readable": None, "enabled_on": []},
    "iommu": {"enabled": None, "mode": None},
    "platform": None,
}


def _read_system(source: FactsSource) -> dict[str, t.Any]:
    kernel = os.path.join(source.proc, "sys/kernel")
    release = source.below("etc/os-release")
    release = release if os.path.exists(release) else source.below("usr/lib/os-release")
    dmi = os.path.join(source.sys, "class/dmi/id")
    return {
        "hostname": source.text(f"{kernel}/hostname"),
        "kernel": source.text(f"{kernel}/osrelease"),
        "boot_id": source.text(f"{kernel}/random/boot_id"),
        "os": facts_host.parse_os_release(source.lines(release)),
        "python": ".".join(str(item) for item in sys.version_info[:3]),
        "time": time.time(),
        "product": source.text(f"{dmi}/product_name"),
        "dgx_os": os.path.exists(source.below("etc/dgx-release")),
        "secure_boot": facts_host.read_secure_boot(source),
        "virtualisation": facts_host.read_virtualisation(source),
    }


def _read_own_addresses(source: FactsSource, request: t.Mapping[str, t.Any]) -> list[facts_net.OwnAddress]:
    addresses = request.get("addresses")
    if addresses is not None:
        return [(str(item[0]), str(item[1]), int(item[2])) for item in addresses]
    return source.guard("addresses", facts_net.query_kernel_addresses, [])


def _plain_nic(source: FactsSource, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A network card without RDMA in the shape of an RDMA port."""
    place = facts_pci.read_slot(source, item["pci"]) if item["pci"] else {"pci": None}
    if item["speed_gbps"] is None:
        source.problem(f"nics/{item['name']}: rate is unknown")
    shared = {key: item[key] for key in ("name", "link_layer", "state", "mtu")}
    return {**shared, "rdma": False, "rate_gbps": item["speed_gbps"], "netdev": item["name"], "gid_types": [], **place}


def _read_network(source: FactsSource, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    owned = _read_own_addresses(source, request)
    interfaces = source.guard("interfaces", lambda: facts_net.read_interfaces(source, owned), [])
    nics = source.guard("nics", lambda: facts_rdma.read_nics(source), [])
    rdma_netdevs = {nic["netdev"] for nic in nics}
    plain = [item for item in interfaces if item["kind"] == "physical" and item["name"] not in rdma_netdevs]
    nics += source.guard("nics", lambda: [_plain_nic(source, item) for item in plain], [])
    peers = [str(peer) for peer in request.get("peers") or []]
    addresses = source.guard(
        "addresses", lambda: facts_net.group_addresses(owned), {"mesh": [], "lan": [], "public": []}
    )
    return {
        "interfaces": interfaces,
        "nics": nics,
        "addresses": addresses,
        "network_types": [name for name, items in addresses.items() if items],
        "interface_for": source.guard("routes", lambda: facts_net.interfaces_for(source, peers, owned), {}),
    }


def _add_gpu_facts(
    source: FactsSource, bus: dict[str, tuple[str, str]], running: t.Collection[str], facts: dict[str, t.Any]
) -> None:
    container = facts["virtualisation"]["kind"] == "container"
    gpu = facts_gpu.read_gpus(source, bus, container)
    version = gpu.pop("driver_version")
    facts["driver"] = facts_gpu.read_driver(source, version)
    facts["nvlink_fabric"] = facts_gpu.read_fabric(source, gpu, running)
    gpu["fabric_id"] = facts["nvlink_fabric"]["id"]
    if gpu["unified_memory"] and gpu["memory_gib"] is None:
        gpu["memory_gib"] = facts["memory_gib"]
    facts["gpu"] = gpu
    facts["gpudirect"] = facts_gpu.judge_gpudirect(source, gpu, facts["driver"], facts["kernel"])
    facts["platform"] = platform_name(gpu, facts["dgx_os"])


def platform_name(gpu: t.Mapping[str, t.Any], dgx_os: bool) -> str | None:
    """Return the name of a platform with rules of its own: ``dgx_spark`` (GB10), ``hgx`` (NVSwitch), ``dgx``."""
    if gpu["unified_memory"]:
        return "dgx_spark"
    if gpu["nvswitch"]:
        return "hgx"
    return "dgx" if dgx_os else None


def _add_topology_facts(source: FactsSource, bus: dict[str, tuple[str, str]], facts: dict[str, t.Any]) -> None:
    """ACS and IOMMU above the devices that exchange data, and how near each NIC is to a GPU."""
    gpus = [device["pci"] for device in facts["gpu"]["devices"] if device["pci"]]
    rdma = [nic for nic in facts["nics"] if nic["rdma"] and nic["pci"] in bus]
    endpoints = sorted({*gpus, *(nic["pci"] for nic in rdma)})
    facts["acs"] = facts_pci.read_acs(source, endpoints)
    facts["iommu"] = facts_pci.read_iommu(source, endpoints)
    order = ("PIX", "PXB", "PHB", "NODE", "SYS")
    for nic in rdma:
        distances = {facts_pci.distance(source, nic["pci"], gpu) for gpu in gpus}
        nic["gpu_distance"] = next((word for word in order if word in distances), None)


def gather_facts(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts of this node.

    :param request: all optional. ``root`` (default ``/``), ``proc_root``, ``sys_root``, ``dev_root``: where to
        read. ``path``: folders with tools. ``tool_timeout_s``: for each tool, default 5. ``peers``: addresses whose
        interface is wanted (``interface_for``) and whose mesh path counts. ``addresses``: list of
        [interface, address, prefix] instead of asking the kernel.
    :returns: the facts of the node record and more; unknown is None, with the reason in ``problems``.
    """
    source = FactsSource(request)
    facts: dict[str, t.Any] = {"schema": SCHEMA, **_read_system(source)}
    running = facts_host.list_processes(source)
    facts.update(source.guard("memory", lambda: facts_host.read_memory(source), {"memory_gib": None}))
    facts["cpu"] = source.guard("cpu", lambda: facts_host.read_cpu(source), {"count": None, "arch": None})
    facts["limits"] = source.guard("limits", lambda: facts_host.read_limits(source, running), {})
    facts["k3s_ability"] = source.guard("abilities", lambda: facts_cluster.read_ability(source), None)
    facts["systemd"] = facts_host.systemd_state(source, running)
    facts.update(_read_network(source, request))
    facts.update(UNKNOWN_GPU)
    bus = source.guard("pci", lambda: facts_pci.list_devices(source), {})
    source.guard("gpu", lambda: _add_gpu_facts(source, bus, running, facts), None)
    source.guard("pci", lambda: _add_topology_facts(source, bus, facts), None)
    facts["topology_file"] = source.guard("nccl.conf", lambda: facts_rdma.read_topology_file(source), None)
    modules = source.names(os.path.join(source.sys, "module"))
    wanted = (
        "ib_uverbs",
        "rdma_cm",
        "ib_umad",
        "mlx5_ib",
        "irdma",
        "bnxt_re",
        "efa",
        "nvidia",
        "nvidia_peermem",
        "gdrdrv",
    )
    facts["modules"] = [name for name in wanted if name in modules]
    peers = [str(peer) for peer in request.get("peers") or []]
    mesh = facts_host.read_tailscale(source, running, bool(facts["addresses"]["mesh"]), peers)
    facts["mesh_path"] = mesh.pop("mesh_path")
    facts["tailscale"] = mesh
    facts["problems"] = source.problems
    return facts
