# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The usage of a node while a job runs: CPU, memory and, with nvidia-smi, GPUs."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import threading
import time

from . import files

_EVERY_S = 2.0
_GPU_EVERY_S = 10.0
_GIB = 1 << 30
_QUERY = "index,utilization.gpu,memory.total,memory.used"


class Sampler:
    """Appends at most one line every two seconds: ``{at, node, cpu_percent, memory_gib, gpu_percent}``."""

    def __init__(self) -> None:
        self.at = 0.0
        self.busy = self.total = 0
        self.gpu: float | None = None
        self.gpu_at = 0.0
        self.query: threading.Thread | None = None

    def write(self, file: pathlib.Path, node: str) -> None:
        """Take a sample if one is due. CPU is the share of all cores since the last sample, in percent."""
        now = time.monotonic()
        if now - self.at < _EVERY_S:
            return
        first, self.at = self.at == 0.0, now
        busy, total = _cpu_ticks()
        share = 100.0 * (busy - self.busy) / max(1, total - self.total)
        self.busy, self.total = busy, total
        self._ask_gpu(now)
        if first:
            return
        line = {"at": time.time(), "node": node, "cpu_percent": round(share, 1), "memory_gib": _memory_used_gib()}
        try:
            files.append_json(file, {**line, "gpu_percent": self.gpu})
        except OSError:
            return

    def _ask_gpu(self, now: float) -> None:
        """Ask for the mean GPU utilisation beside the supervisor: nvidia-smi may hang for minutes on a sick node."""
        if now - self.gpu_at < _GPU_EVERY_S or (self.query and self.query.is_alive()):
            return
        self.gpu_at = now
        tool = shutil.which("nvidia-smi")
        if tool:
            self.query = threading.Thread(target=self._query, args=(tool,), daemon=True)
            self.query.start()

    def _query(self, tool: str) -> None:
        values = [gpu["busy_percent"] for gpu in query_gpus(tool) if gpu["busy_percent"] is not None]
        self.gpu = round(sum(values) / len(values), 1) if values else None


def query_gpus(tool: str | None) -> list[dict[str, float | None]]:
    """Return ``{index, busy_percent, memory_gib, memory_used_gib}`` of each GPU; none where nvidia-smi does not answer.

    A figure that the driver does not have, such as those of a GPU in MIG mode, is null.
    """
    if tool is None:
        return []
    argv = [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(argv, capture_output=True, timeout=8, check=True, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[_number(field) for field in line.split(",")] for line in text.splitlines()]
    return [
        {"index": row[0], "busy_percent": row[1], "memory_gib": _to_gib(row[2]), "memory_used_gib": _to_gib(row[3])}
        for row in rows
        if len(row) == 4 and row[0] is not None
    ]


def _number(field: str) -> float | None:
    text = field.strip()
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def _to_gib(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else round(mebibytes / 1024, 1)


def _cpu_ticks() -> tuple[int, int]:
    with open("/proc/stat", encoding="ascii") as handle:
        values = [int(item) for item in handle.readline().split()[1:9]]
    idle = values[3] + values[4]
    return sum(values) - idle, sum(values)


def _memory_used_gib() -> float:
    values = {}
    with open("/proc/meminfo", encoding="ascii") as handle:
        for line in handle:
            key, _unused, rest = line.partition(":")
            values[key] = int(rest.split()[0]) * 1024
    used = values["MemTotal"] - values.get("MemAvailable", os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return round(used / _GIB, 2)
