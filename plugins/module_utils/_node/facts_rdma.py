# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA facts: devices, ports, GIDs (kernel: Documentation/ABI/stable/sysfs-class-infiniband)."""

from __future__ import annotations

import os
import re
import typing as t

from . import facts_pci
from .facts_source import FactsSource

_STATES = {"1": "down", "2": "init", "3": "armed", "4": "active", "5": "active_defer"}
_LAYERS = {"InfiniBand": "infiniband", "Ethernet": "ethernet"}
# RoCE tables have 256 entries, filled from the start; after a gap this long there are no more.
_GID_GAP = 16
_NCCL_CONF = "/etc/nccl.conf"


def read_topology_file(source: FactsSource) -> str | None:
    """Return the file in which this machine describes its PCIe to NCCL, None where NCCL detects it.

    Virtual machines do not see it; the images of Azure's ND series (azhpc-images, customizations/) name such a file in
    NCCL's own configuration, which programs in pods do not have.
    """
    settings = [line.partition("=") for line in source.lines(source.below(_NCCL_CONF)) if not line.startswith("#")]
    path = next((value for name, _unused, value in reversed(settings) if name == "NCCL_TOPO_FILE"), "")
    if not os.path.isfile(source.below(path)):
        return None
    return os.path.realpath(path) if source.root == "/" else path


def parse_rate_gbps(text: str | None) -> float | None:
    """Return Gb/s of a port's rate such as ``400 Gb/sec (4X NDR)`` or ``2.5 Gb/sec (1X SDR)``."""
    found = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", text or "")
    return float(found.group(1)) if found else None


def parse_gid_type(text: str | None, link_layer: str | None) -> str | None:
    """Return ``ib``, ``roce_v1`` or ``roce_v2`` for a text of ``gid_attrs/types``."""
    if text == "RoCE v2":
        return "roce_v2"
    if text == "IB/RoCE v1":
        return "ib" if link_layer == "infiniband" else "roce_v1"
    return None


def read_gids(source: FactsSource, port: str, link_layer: str | None) -> list[dict[str, t.Any]]:
    """Return ``{index, gid, type, netdev}`` of the entries in use."""
    found: list[dict[str, t.Any]] = []
    indices = sorted(int(name) for name in source.names(f"{port}/gids") if name.isdecimal())
    gap = 0
    for index in indices:
        gid = source.text(f"{port}/gids/{index}")
        if gid is None or not gid.replace(":", "").strip("0"):
            gap += 1
            if gap >= _GID_GAP:
                break
            continue
        gap = 0
        kind = parse_gid_type(source.text(f"{port}/gid_attrs/types/{index}"), link_layer)
        netdev = source.text(f"{port}/gid_attrs/ndevs/{index}")
        found.append({"index": index, "gid": gid, "type": kind, "netdev": netdev})
    return found


def _find_netdev(source: FactsSource, device: str, table: list[dict[str, t.Any]], port: int) -> str | None:
    """The interface of a port: a GID's own, else the device's; with two ports of one device, the one of that port."""
    owned = [entry["netdev"] for entry in table if entry["netdev"]]
    names = source.names(f"{device}/device/net")
    by_port = [name for name in names if source.number(f"{device}/device/net/{name}/dev_port") == port - 1]
    return (owned or by_port or names or [None])[0]


def _read_port(source: FactsSource, device: str, name: str, port: int) -> dict[str, t.Any]:
    base = f"{device}/ports/{port}"
    label = f"nics/{name}"
    layer_text = source.need(f"{base}/link_layer", f"{label}: link layer")
    layer = _LAYERS.get(layer_text or "")
    if layer_text and layer is None:
        source.problem(f"{label}: link layer is {layer_text[:40]}")
    state = _STATES.get((source.need(f"{base}/state", f"{label}: state") or "").partition(":")[0])
    rate = parse_rate_gbps(source.text(f"{base}/rate"))
    if rate is None:
        source.problem(f"{label}: rate is unknown")
    table = read_gids(source, base, layer)
    netdev = _find_netdev(source, device, table, port)
    first = next((entry["gid"] for entry in table), "")
    mtu = source.number(os.path.join(source.sys, "class/net", netdev, "mtu")) if netdev else None
    return {
        "name": name,
        "rdma": True,
        "port": port,
        "link_layer": layer,
        "state": state,
        "rate_gbps": rate,
        "netdev": netdev,
        "mtu": mtu,
        "subnet": first[:19] if layer == "infiniband" and len(first) == 39 else None,
        "pkey": source.text(f"{base}/pkeys/0"),
        "gid_types": sorted({entry["type"] for entry in table if entry["type"]}),
        "gids": table,
    }


def read_nics(source: FactsSource) -> list[dict[str, t.Any]]:
    """Return one entry for every port of every RDMA device; none where the kernel has no RDMA."""
    found = []
    base = os.path.join(source.sys, "class/infiniband")
    for name in source.names(base):
        device = f"{base}/{name}"
        bdf = facts_pci.address_of(f"{device}/device")
        common: dict[str, t.Any] = facts_pci.read_slot(source, bdf, f"nics/{name}") if bdf else {"pci": None}
        common["firmware"] = source.text(f"{device}/fw_ver")
        common["node_guid"] = source.text(f"{device}/node_guid")
        common["virtual_function"] = os.path.isdir(f"{device}/device/physfn")
        ports = [int(port) for port in source.names(f"{device}/ports") if port.isdecimal()]
        if not ports:
            source.problem(f"nics/{name}: the device has no ports")
        found += [{**_read_port(source, device, name, port), **common} for port in sorted(ports)]
    return found
