# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of a machine's GPUs for node_exporter's textfile collector: ``python3 gpu_textfile.py FOLDER [SECONDS]``.

It is one file that needs Python 3.10 and nvidia-smi, for GPUs without DCGM (GeForce, DGX Spark) and for hosts. What a
GPU does not tell has no figure. With SECONDS it writes again and again, else once.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time

_FILE = "muster_gpu.prom"
_LIMIT_S = 30.0
# Field of nvidia-smi -> metric. Those that a driver does not know are left out.
FIELDS = {
    "utilization.gpu": "muster_gpu_utilisation_percent",
    "power.draw": "muster_gpu_power_watts",
    "temperature.gpu": "muster_gpu_temperature_celsius",
    "temperature.memory": "muster_gpu_memory_temperature_celsius",
    "clocks.sm": "muster_gpu_clock_mhz",
    "memory.used": "muster_gpu_memory_used_bytes",
    "memory.total": "muster_gpu_memory_bytes",
    "ecc.errors.uncorrected.volatile.total": "muster_gpu_ecc_uncorrected_errors",
    "remapped_rows.pending": "muster_gpu_remap_pending",
    "remapped_rows.failure": "muster_gpu_remap_failure",
    "pcie.link.width.current": "muster_gpu_pcie_width",
    "pcie.link.width.max": "muster_gpu_pcie_width_max",
}
_MEBIBYTES = ("memory.used", "memory.total")
# Older drivers call them clocks_throttle_reasons.
_SLOWED = tuple(
    f"clocks_event_reasons.{name}" for name in ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
)
_WORDS = {"yes": 1.0, "active": 1.0, "no": 0.0, "not active": 0.0}
OTHERS = (
    "muster_gpu_info",
    "muster_gpu_throttled",
    "muster_gpu_processes",
    "muster_gpu_devices",
    "muster_gpu_pci_devices",
    "muster_gpu_readable",
    "muster_gpu_xid_time_seconds",
    "muster_pcie_errors_total",
)
_PCI = pathlib.Path("/sys/bus/pci/devices")
# NVIDIA and Mellanox; the kernel's "AER" counts the errors of their links (Documentation/PCI/pcieaer-howto).
_VENDORS = ("0x10de", "0x15b3")
_ERRORS = re.compile(r"^TOTAL_ERR_\w+ ([0-9]+)$", re.MULTILINE)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): ([0-9]+)")
_INVALID = re.compile(r'Field "([a-z_.]+)" is not a valid field')


def ask(*words: str) -> str | None:
    """Return what nvidia-smi prints, None where it is not there or hangs."""
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    invalid = _INVALID.search(done.stdout)
    return done.stdout if done.returncode == 0 or invalid else None


def query(fields: list[str]) -> tuple[list[str], list[list[str]]] | None:
    """Return the fields that this driver knows, and the values of each GPU; None where no GPU can be read."""
    while fields:
        text = ask(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if text is None:
            return None
        invalid = _INVALID.search(text)
        if not invalid:
            rows = [[item.strip() for item in line.split(",")] for line in text.splitlines() if line.strip()]
            return fields, [row for row in rows if len(row) == len(fields)]
        old = invalid[1].replace("clocks_event_reasons", "clocks_throttle_reasons")
        fields = [old if name == invalid[1] else name for name in fields if name != invalid[1] or old != name]
    return None


def number(text: str) -> float | None:
    """Return a value of nvidia-smi, None for one that the GPU does not tell, as [N/A]."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return float(text)
    except ValueError:
        return None


def figure(field: str, text: str) -> float | None:
    """Return the value of a field in the unit of its metric."""
    value = number(text)
    return value * 2**20 if value is not None and field in _MEBIBYTES else value


def line(name: str, labels: dict[str, str], value: float) -> str:
    """Return one line of the text format."""
    quoted = ((key, item.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")) for key, item in labels.items())
    inner = ",".join(f'{key}="{item}"' for key, item in quoted)
    return f"{name}{{{inner}}} {value:.15g}" if inner else f"{name} {value:.15g}"


def describe_gpus() -> list[str]:
    """Return the lines of all GPUs."""
    about = ["uuid", "name", "pci.bus_id", "driver_version"]
    found = query([*about, *FIELDS, *_SLOWED])
    if found is None:
        return [line("muster_gpu_readable", {}, 0.0)]
    names, rows = found
    taken = (ask("--query-compute-apps=gpu_uuid", "--format=csv,noheader") or "").split()
    lines = [line("muster_gpu_readable", {}, 1.0), line("muster_gpu_devices", {}, len(rows))]
    for row in rows:
        values = dict(zip(names, row, strict=True))
        own = {"uuid": values["uuid"]}
        told = {**own, "model": values["name"], "pci": values["pci.bus_id"], "driver": values["driver_version"]}
        lines.append(line("muster_gpu_info", told, 1.0))
        figures = {metric: figure(field, values.get(field, "")) for field, metric in FIELDS.items()}
        slowed = [number(values[name]) for name in names if name.startswith("clocks_") and "_reasons." in name]
        figures["muster_gpu_throttled"] = max((item for item in slowed if item is not None), default=None)
        figures["muster_gpu_processes"] = float(taken.count(values["uuid"]))
        lines += [line(metric, own, value) for metric, value in figures.items() if value is not None]
    return lines


def count_errors(root: pathlib.Path = _PCI) -> list[str]:
    """Return the lines of the errors of PCIe links that the kernel counted, of GPUs and of HCAs."""
    lines = []
    for place in sorted(root.glob("*/aer_dev_*")):
        try:
            vendor, text = (place.parent / "vendor").read_text().strip(), place.read_text()
        except OSError:
            continue
        total, kind = _ERRORS.search(text), place.name.removeprefix("aer_dev_")
        if vendor in _VENDORS and total:
            lines.append(line("muster_pcie_errors_total", {"pci": place.parent.name, "kind": kind}, float(total[1])))
    return lines


def count_devices(root: pathlib.Path = _PCI) -> int:
    """Return how many GPUs of NVIDIA are on the bus: display controllers, of class 03."""
    count = 0
    for place in root.glob("*"):
        try:
            vendor, kind = (place / "vendor").read_text().strip(), (place / "class").read_text().strip()
        except OSError:
            continue
        count += vendor == "0x10de" and kind.startswith("0x03")
    return count


def read_xids(path: str = "/dev/kmsg") -> dict[tuple[str, str], float]:
    """Return when the kernel reported an error of a GPU last, by address and number; only root may read it."""
    found: dict[tuple[str, str], float] = {}
    try:
        kernel = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return found
    boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    try:
        while data := _read_record(kernel):
            head, _found, text = data.partition(";")
            match, fields = _XID.search(text), head.split(",")
            if match and len(fields) > 2 and fields[2].isdecimal():
                found[match[1].lower(), match[2]] = boot + int(fields[2]) / 1e6
    except OSError:
        # EAGAIN: everything was read.
        pass
    finally:
        os.close(kernel)
    return found


def _read_record(kernel: int) -> str:
    while True:
        try:
            return os.read(kernel, 8192).decode(errors="replace")
        except BrokenPipeError:
            # It was overwritten meanwhile; the next read has the one after it.
            continue


def describe() -> str:
    """Return all lines; a machine without a GPU has that it has none."""
    devices = count_devices()
    lines = [line("muster_gpu_pci_devices", {}, devices)]
    lines += describe_gpus() if devices or ask("-L") else []
    lines += count_errors()
    lines += [
        line("muster_gpu_xid_time_seconds", {"pci": pci, "xid": xid}, at) for (pci, xid), at in read_xids().items()
    ]
    return "".join(f"{text}\n" for text in lines)


def write(folder: pathlib.Path) -> None:
    """Write the file so that a reader sees the old one or the new one."""
    place = folder / _FILE
    new = folder / f".{_FILE}.new"
    new.write_text(describe())
    new.chmod(0o644)
    os.replace(new, place)


def main(words: list[str]) -> int:
    """Write once, or again and again."""
    if not 1 <= len(words) <= 2 or not pathlib.Path(words[0]).is_dir():
        print("usage: gpu_textfile.py FOLDER [SECONDS]; FOLDER is node_exporter's --collector.textfile.directory")
        return 2
    while True:
        write(pathlib.Path(words[0]))
        if len(words) == 1:
            return 0
        time.sleep(max(1.0, float(words[1])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
