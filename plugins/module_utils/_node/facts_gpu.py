# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU facts: count, model, PCI slot, driver, NVSwitch, and what GPUDirect needs.

Sources: sysfs for the slot, /proc/driver/nvidia for the driver, nvidia-smi under a timeout for the rest.
"""

from __future__ import annotations

import os
import re
import typing as t

from . import facts_pci
from .facts_source import FactsSource, clean_value

NVIDIA = "10de"
QUERY = "index,name,uuid,memory.total,pci.bus_id,driver_version,compute_cap,memory.used"
# Compute capability to architecture (NVIDIA CUDA programming guide, table of compute capabilities).
_ARCHITECTURES = {
    "6": "pascal",
    "7.0": "volta",
    "7.2": "volta",
    "7.5": "turing",
    "8.9": "ada",
    "8": "ampere",
    "9": "hopper",
    "10": "blackwell",
    "11": "blackwell",
    "12": "blackwell",
}
# GPUDirect by DMA-BUF needs the open kernel modules, Linux 5.12 and Turing (GPU Operator guide, GPUDirect RDMA).
_DMABUF_KERNEL = (5, 12)
_BEFORE_TURING = {"pascal", "volta"}


def architecture(capability: str | None) -> str | None:
    """Return the name of a compute capability such as ``9.0``."""
    value = capability or ""
    return _ARCHITECTURES.get(value) or _ARCHITECTURES.get(value.partition(".")[0])


def bus_address(text: str | None) -> str | None:
    """Return sysfs's form of a bus id such as ``00000000:1B:00.0``."""
    found = re.fullmatch(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2}\.[0-7])", text or "")
    return f"{found.group(1)[-4:]}:{found.group(2)}:{found.group(3)}".lower() if found else None


def parse_query(text: str) -> list[dict[str, t.Any]]:
    """GPUs of ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``; memory is MiB there, GiB here."""
    found = []
    for line in text.splitlines():
        fields = [clean_value(item) for item in line.split(",")]
        if len(fields) < 6 or not (fields[0] or "").isdecimal():
            continue
        found.append(
            {
                "model": fields[1],
                "uuid": fields[2],
                "memory_gib": _to_gib(fields[3]),
                "memory_used_gib": _to_gib(fields[7] if len(fields) > 7 else None),
                "pci": bus_address(fields[4]),
                "driver": fields[5],
                "arch": architecture(fields[6] if len(fields) > 6 else None),
            }
        )
    return found


def _to_gib(mebibytes: str | None) -> float | None:
    return round(int(mebibytes) / 1024, 1) if mebibytes and mebibytes.isdecimal() else None


def parse_driver(text: str | None) -> dict[str, str | None]:
    """``{version, flavour}`` of /proc/driver/nvidia/version; the open modules name themselves."""
    line = (text or "").partition("\n")[0]
    version = re.search(r"\s([0-9]{3,4}(?:\.[0-9]+){1,2})\s", f"{line} ")
    if not version:
        return {"version": None, "flavour": None}
    return {"version": version.group(1), "flavour": "open" if "Open Kernel Module" in line else "proprietary"}


def parse_fabric(text: str) -> dict[str, str | None]:
    """``{state, id}`` of the Fabric section of ``nvidia-smi -q``: id is cluster UUID and clique, None if not set."""
    value = {
        key: clean_value(found.group(1)) if (found := re.search(rf"^\s+{key}\s+: (.*)$", section, re.M)) else None
        for section in [text.partition("    Fabric\n")[2]]
        for key in ("State", "CliqueId", "ClusterUUID")
    }
    cluster = (value["ClusterUUID"] or "").replace("0", "").replace("-", "")
    return {"state": value["State"], "id": f"{value['ClusterUUID']}.{value['CliqueId']}" if cluster else None}


def _query_gpus(source: FactsSource) -> list[dict[str, t.Any]]:
    answer = source.run("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
    return parse_query(answer) if answer else []


def parse_actions(text: str) -> dict[str, str]:
    """Return what GPUs ask for before they can be used again, by UUID: ``Reset``, ``Reboot``, ``Drain P2P``."""
    rows = (line.partition(",") for line in text.splitlines() if line.startswith("GPU-"))
    asked = ((uuid.strip(), clean_value(action)) for uuid, _comma, action in rows)
    return {uuid: action for uuid, action in asked if action and action.lower() != "none"}


def _without_broken(source: FactsSource, queried: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the GPUs that may be used as they are; a driver that is older than the field answers with an error."""
    if not queried:
        return queried
    query = "--query-gpu=uuid,gpu_recovery_action"
    asked = parse_actions(source.run("nvidia-smi", query, "--format=csv,noheader", accept=range(256)) or "")
    for gpu in queried:
        if gpu["uuid"] in asked:
            source.problem(
                f"gpu/{gpu['pci'] or gpu['uuid']}: is not counted, nvidia-smi asks for: {asked[gpu['uuid']]}"
            )
    return [gpu for gpu in queried if gpu["uuid"] not in asked]


def _may_be_sliced(gpu: t.Mapping[str, t.Any]) -> bool:
    return bool(re.search(r"\b(?:A30|A100|H100|H200|H20|H800|A800|GH200|B200|B300|GB200|GB300)\b", gpu["model"] or ""))


def parse_slices(text: str) -> dict[str, list[int]]:
    """Return the sizes in GB of the MIG slices of ``nvidia-smi -L``, by the UUID of their GPU."""
    found: dict[str, list[int]] = {}
    uuid = ""
    for line in text.splitlines():
        if gpu := re.match(r"GPU \d+: .*\(UUID: (\S+)\)", line):
            uuid = gpu[1]
        elif part := re.match(r"\s+MIG \S*?\.(\d+)gb", line):
            found.setdefault(uuid, []).append(int(part[1]))
    return found


def _without_slices(source: FactsSource, queried: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the GPUs that a gang can use: the whole ones, else one slice: a process sees no more (MIG guide)."""
    asked = any(map(_may_be_sliced, queried)) and source.run("nvidia-smi", "-L", accept=range(256))
    slices = parse_slices(asked or "")
    if not slices:
        return queried
    whole = [gpu for gpu in queried if gpu["uuid"] not in slices]
    sizes = [size for own in slices.values() for size in own]
    source.problem(f"gpu: MIG is on, {len(slices)} GPUs are cut into {len(sizes)} slices (from {min(sizes)} GB)")
    return whole or [{**queried[0], "memory_gib": float(min(sizes))}]


def _count_visible(source: FactsSource, on_bus: int, container: bool) -> int:
    """GPUs that this node may use when nvidia-smi is silent: a container sees the whole bus of its host."""
    nodes = [name for name in source.names(source.dev) if re.fullmatch(r"nvidia[0-9]{1,3}", name)]
    # The file of a GPU that fell off the bus remains.
    return len(nodes) if container or not on_bus else min(len(nodes) or on_bus, on_bus)


def _describe_device(source: FactsSource, bdf: str | None, queried: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    place: dict[str, t.Any] = facts_pci.read_slot(source, bdf) if bdf else {"pci": None}
    # An idle GPU lowers its link's speed, but not its width.
    if bdf and place["pci_width"] and place["pci_width"] < (place["pci_width_max"] or 0):
        source.problem(f"gpu/{bdf}: PCIe runs at x{place['pci_width']}, the device can do x{place['pci_width_max']}")
    return {**place, **{key: queried.get(key) for key in ("uuid", "model", "memory_gib", "memory_used_gib")}}


def _lowest(devices: t.Iterable[t.Mapping[str, t.Any]], key: str) -> t.Any:
    values = [device[key] for device in devices if device.get(key) is not None]
    return min(values) if values else None


def _model_from_driver(source: FactsSource, bdf: str) -> str | None:
    for line in source.lines(os.path.join(source.proc, "driver/nvidia/gpus", bdf, "information")):
        if line.startswith("Model:"):
            return clean_value(line.partition(":")[2])
    return None


def has_nvswitch(
    source: FactsSource, bus: t.Mapping[str, tuple[str, str]], model: str | None, count: int
) -> bool | None:
    """Whether NVSwitch joins the GPUs: bridges of NVIDIA on the bus; from Blackwell on they are behind a NIC."""
    if any(vendor == NVIDIA and klass.startswith("0680") for vendor, klass in bus.values()):
        return True
    if source.names(os.path.join(source.proc, "driver/nvidia-nvswitch/devices")):
        return True
    if model and re.search(r"\b(B200|B300|GB200|GB300)\b", model) and count > 1:
        return True
    return False if model else None


def read_gpus(source: FactsSource, bus: t.Mapping[str, tuple[str, str]], container: bool) -> dict[str, t.Any]:
    """Return the node record's ``gpu`` with ``driver_version`` and ``devices``, one entry a GPU."""
    on_bus = [bdf for bdf, (vendor, klass) in bus.items() if vendor == NVIDIA and klass[:4] in ("0300", "0302")]
    whole = _query_gpus(source)
    queried = _without_slices(source, _without_broken(source, whole))
    count = len(queried) if whole else _count_visible(source, len(on_bus), container)
    if whole and len(on_bus) > len(whole) and not container:
        lost = ", ".join(sorted(set(on_bus) - {gpu["pci"] for gpu in whole}))
        source.problem(f"gpu: {len(on_bus)} GPUs are on the PCI bus, nvidia-smi lists {len(whole)}: not {lost}")
    # Without nvidia-smi a GPU is known by its place on the bus alone.
    listed = [(gpu["pci"] if gpu["pci"] in bus else None, gpu) for gpu in queried]
    known = listed if whole else [(bdf, {}) for bdf in on_bus[:count]]
    devices = [_describe_device(source, bdf, gpu) for bdf, gpu in known]
    first = queried[0] if queried else {}
    model = first.get("model") or _model_on_bus(source, on_bus)
    return {
        "model": model if count else None,
        "count": count,
        "memory_gib": _lowest(queried, "memory_gib"),
        "arch": first.get("arch"),
        "pci_gen": _lowest(devices, "pci_gen_max"),
        "pci_width": _lowest(devices, "pci_width"),
        "nvswitch": has_nvswitch(source, bus, model, count) if count else None,
        "unified_memory": bool(re.search(r"\bGB10\b", model)) if model else None,
        "driver_version": first.get("driver"),
        "devices": devices,
    }


def _model_on_bus(source: FactsSource, on_bus: t.Iterable[str]) -> str | None:
    """Return the model that the driver states for the first GPU of which it states one."""
    return next(filter(None, (_model_from_driver(source, bdf) for bdf in on_bus)), None)


def read_driver(source: FactsSource, queried_version: str | None) -> dict[str, t.Any]:
    """Return ``{version, flavour, loaded, nouveau}``."""
    facts: dict[str, t.Any] = parse_driver(source.text(os.path.join(source.proc, "driver/nvidia/version")))
    modules = os.path.join(source.sys, "module")
    facts["version"] = facts["version"] or queried_version
    facts["loaded"] = facts["version"] is not None or os.path.isdir(f"{modules}/nvidia")
    facts["nouveau"] = os.path.isdir(f"{modules}/nouveau")
    return facts


def read_fabric(source: FactsSource, gpu: t.Mapping[str, t.Any], running: t.Collection[str]) -> dict[str, t.Any]:
    """Return ``{state, id, manager {running, version}, imex_running}``; asked only where NVLink leaves the board."""
    if not gpu["nvswitch"]:
        return {"state": None, "id": None, "manager": None, "imex_running": None}
    facts: dict[str, t.Any] = parse_fabric(source.run("nvidia-smi", "-q") or "")
    answer = source.run("nv-fabricmanager", "--version")
    version = re.search(r"[0-9]{3,4}(?:\.[0-9]+){1,2}", answer or "")
    # The kernel cuts a process's name after 15 characters.
    facts["manager"] = {"running": "nv-fabricmanage" in running, "version": version.group(0) if version else None}
    facts["imex_running"] = "nvidia-imex" in running
    return facts


def judge_gpudirect(
    source: FactsSource, gpu: t.Mapping[str, t.Any], driver_facts: t.Mapping[str, t.Any], kernel: str | None
) -> dict[str, t.Any]:
    """Return ``{supported, peermem, dmabuf, reason}``: can a NIC read and write this node's GPU memory?"""
    if not gpu["count"]:
        return {"supported": None, "peermem": None, "dmabuf": None, "reason": None}
    modules = os.path.join(source.sys, "module")
    peermem = os.path.isdir(f"{modules}/nvidia_peermem") or os.path.exists(
        os.path.join(source.sys, "kernel/mm/memory_peers/nv_mem")
    )
    release = re.match(r"([0-9]+)\.([0-9]+)", kernel or "")
    dmabuf = None
    if driver_facts["flavour"] and release:
        new = (int(release.group(1)), int(release.group(2))) >= _DMABUF_KERNEL
        dmabuf = driver_facts["flavour"] == "open" and new and gpu["arch"] not in _BEFORE_TURING
    if gpu["unified_memory"]:
        return {"supported": False, "peermem": peermem, "dmabuf": False, "reason": "GB10 has no GPUDirect RDMA"}
    supported = True if peermem else dmabuf
    reason = None if supported else "needs the open kernel modules and Linux 5.12, or nvidia_peermem"
    return {"supported": supported, "peermem": peermem, "dmabuf": dmabuf, "reason": reason}
