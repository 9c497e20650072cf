# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI facts: a device's position, the speed of its slot, and the settings of the bridges above it (PCIe
specification).
"""

from __future__ import annotations

import os
import re
import struct
import typing as t

from .facts_source import FactsSource

_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6}
_ACS_CAPABILITY = 0x000D
_SOURCE_VALIDATION = 0x1


def generation(speed: str | None) -> int | None:
    """Return the PCIe generation of a speed such as ``32.0 GT/s PCIe``."""
    return _GENERATIONS.get((speed or "").split(" ")[0])


def list_devices(source: FactsSource) -> dict[str, tuple[str, str]]:
    """Return every PCI device: address to (vendor, class), both as hexadecimal without ``0x``."""
    found = {}
    base = os.path.join(source.sys, "bus/pci/devices")
    for bdf in source.names(base):
        vendor = source.text(f"{base}/{bdf}/vendor")
        klass = source.text(f"{base}/{bdf}/class")
        if vendor and klass:
            found[bdf] = (vendor.removeprefix("0x"), klass.removeprefix("0x"))
    return found


def read_slot(source: FactsSource, bdf: str, label: str | None = None) -> dict[str, t.Any]:
    """Return ``{pci, pci_gen, pci_width, pci_gen_max, pci_width_max, numa}`` of one device.

    With a ``label``, an unknown or a reduced link is a problem.
    """
    base = os.path.join(source.sys, "bus/pci/devices", bdf)
    facts: dict[str, t.Any] = {"pci": bdf}
    for suffix, prefix in (("", "current"), ("_max", "max")):
        speed = source.text(f"{base}/{prefix}_link_speed")
        facts[f"pci_gen{suffix}"] = generation(speed)
        width = source.number(f"{base}/{prefix}_link_width")
        # 0 and 255 are what a virtual slot reports.
        facts[f"pci_width{suffix}"] = width if width and width <= 32 else None
    # A device cannot be faster than the port above it.
    above = ancestors(source, bdf)[-1:]
    port = generation(source.text(os.path.join(source.sys, "bus/pci/devices", *above, "max_link_speed")))
    if above and port and facts["pci_gen_max"]:
        facts["pci_gen_max"] = min(facts["pci_gen_max"], port)
    facts["numa"] = source.number(f"{base}/numa_node")
    if label:
        _report_slot(source, label, facts)
    return facts


def _report_slot(source: FactsSource, label: str, facts: t.Mapping[str, t.Any]) -> None:
    generations, widths = (
        [facts[f"pci_{item}"] for item in pair] for pair in (("gen", "gen_max"), ("width", "width_max"))
    )
    if generations[0] is None or widths[0] is None:
        source.problem(f"{label}: PCIe speed or width of {facts['pci']} is unknown")
    elif generations[0] < (generations[1] or 0) or widths[0] < (widths[1] or 0):
        source.problem(
            f"{label}: PCIe runs at gen {generations[0]} x{widths[0]}, "
            f"the device can do gen {generations[1]} x{widths[1]}"
        )


def address_of(path: str) -> str | None:
    """Return the PCI address behind a sysfs path; a virtio device is one level below its own."""
    parts = [part for part in os.path.realpath(path).split(os.sep) if _BDF.match(part)]
    return parts[-1] if parts and os.path.exists(path) else None


def ancestors(source: FactsSource, bdf: str) -> list[str]:
    """Return the devices between the root complex and a device: root complex first, then bridges."""
    real = os.path.realpath(os.path.join(source.sys, "bus/pci/devices", bdf))
    parts = real.split(os.sep)
    roots = [index for index, part in enumerate(parts) if part.startswith("pci")]
    return parts[roots[-1] : -1] if roots else []


def distance(source: FactsSource, a: str, b: str) -> str | None:
    """Return how far two devices are apart, in the words of ``nvidia-smi topo -m``.

    PIX and PXB: below one bridge or several; PHB: one root complex; NODE: one NUMA node; SYS: further.
    NCCL uses GPUDirect up to PXB unless NCCL_NET_GDR_LEVEL sets another distance.
    """
    left, right = ancestors(source, a), ancestors(source, b)
    if not left or not right:
        return None
    shared = len(os.path.commonprefix([left, right]))
    if shared > 1:
        return "PIX" if max(len(left), len(right)) - shared <= 1 else "PXB"
    if shared == 1:
        return "PHB"
    base = os.path.join(source.sys, "bus/pci/devices")
    numa = [source.number(f"{base}/{bdf}/numa_node") for bdf in (a, b)]
    return "NODE" if numa[0] is not None and numa[0] == numa[1] else "SYS"


def is_acs_enabled(config: bytes) -> bool | None:
    """Return whether a bridge's ACS source validation is on, from its configuration space; None when it has no ACS.

    Extended capabilities start at 0x100: id in bits 0-15, next offset in bits 20-31; the ACS control word is at 6.
    """
    offset = 0x100
    for _unused in range(64):
        if not 0x100 <= offset <= len(config) - 8:
            return None
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == _ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, offset + 6)
            return bool(control & _SOURCE_VALIDATION)
        offset = header >> 20
    return None


def read_acs(source: FactsSource, endpoints: t.Iterable[str]) -> dict[str, t.Any]:
    """Return ``{readable, enabled_on}`` for the bridges above ``endpoints``; without root nothing is readable."""
    spaces = _read_bridges(source, endpoints)
    readable = any(len(config) > 256 for config in spaces.values()) if spaces else None
    return {"readable": readable, "enabled_on": [bdf for bdf, config in spaces.items() if is_acs_enabled(config)]}


def list_acs(source: FactsSource, endpoints: t.Iterable[str]) -> dict[str, bool]:
    """Return which of the bridges above ``endpoints`` have ACS, and whether it is on."""
    found = {bdf: is_acs_enabled(config) for bdf, config in _read_bridges(source, endpoints).items()}
    return {bdf: enabled for bdf, enabled in found.items() if enabled is not None}


def _read_bridges(source: FactsSource, endpoints: t.Iterable[str]) -> dict[str, bytes]:
    """Return the configuration spaces of the bridges above ``endpoints``, by their sorted addresses."""
    bridges = sorted({part for bdf in endpoints for part in ancestors(source, bdf) if _BDF.match(part)})
    base = os.path.join(source.sys, "bus/pci/devices")
    return {bdf: source.data(os.path.join(base, bdf, "config"), 4096) or b"" for bdf in bridges}


def read_iommu(source: FactsSource, endpoints: t.Iterable[str]) -> dict[str, t.Any]:
    """Return ``{enabled, mode}``; mode is passthrough, translated or None."""
    if not source.names(os.path.join(source.sys, "class/iommu")):
        return {"enabled": False, "mode": None}
    base = os.path.join(source.sys, "bus/pci/devices")
    kinds = {source.text(f"{base}/{bdf}/iommu_group/type") for bdf in endpoints} - {None}
    if kinds:
        return {"enabled": True, "mode": "passthrough" if kinds == {"identity"} else "translated"}
    words = (source.text(os.path.join(source.proc, "cmdline")) or "").split()
    return {"enabled": True, "mode": "passthrough" if "iommu=pt" in words else None}
