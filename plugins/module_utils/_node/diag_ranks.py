# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what the ranks of a run are doing on this node right now, for a job that hangs or is slow; changes nothing.

Two samples ``window_s`` apart show activity: processor time of each rank, bytes of each interface and RDMA port.
Of the environment only the names are reported, and the values of variables that configure the network.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import time
import typing as t

from . import diag_network, files, host_units, kernel_log, processes, usage

_PROC = pathlib.Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
# Prefixes and names of variables that configure the network and hold no secrets; of others only the name is reported.
_SHOWN = ("NCCL_", "GLOO_", "FI_", "UCX_", "TORCH_NCCL_", "OMPI_MCA_btl", "OMPI_MCA_oob_tcp_if")
_SHOWN_NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "NNODES", "NODE_RANK")
_LIMITS = {"Max locked memory": "memlock", "Max open files": "nofile", "Max processes": "nproc"}
_KERNEL_WORDS = (
    *kernel_log.GPU_WORDS,
    "Out of memory",
    "oom-kill",
    "Memory cgroup",
    "link down",
    "Link is Down",
    "hung_task",
    "blocked",
)


def examine(run: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{units, ranks, processes, counters, window_s, memory, shm, kernel, ras, gpus}`` of a run on this node.

    :param request: ``window_s``, and ``ras_s``: seconds to wait for NCCL's RAS, 0 skips that.
    """
    spec = files.read_json(run / "units" / "agent" / "spec.json") or {}
    started, ended = _read_events(run / "events.jsonl")
    alive = _select_live(started, spec)
    any_pid = next(iter(alive.values()), None)
    first, began = {rank: _cpu_s(pid) for rank, pid in alive.items()}, time.monotonic()
    before = diag_network.read_counters(any_pid)
    time.sleep(max(0.0, float(request.get("window_s", 1.0))))
    window, after = time.monotonic() - began, diag_network.read_counters(any_pid)
    ranks = [_describe_rank(rank, line, ended.get(rank), alive.get(rank)) for rank, line in sorted(started.items())]
    for item in ranks:
        now, then = _cpu_s(item["pid"]) if item["alive"] else None, first.get(item["rank"])
        item["cpu_percent"] = None if now is None or then is None else round(100 * (now - then) / window, 1)
    return {
        "at": time.time(),
        "units": {folder.name: host_units.unit_status(folder) for folder in sorted((run / "units").glob("*"))},
        "ranks": ranks,
        "processes": len(processes.find_marked(spec["marker"])) if spec.get("marker") else 0,
        "window_s": round(window, 3),
        "counters": diag_network.subtract_counters(before, after),
        "memory": _read_memory(any_pid),
        "gpus": _read_gpus(ranks) if alive else [],
        "shm": _read_file_system("/dev/shm"),
        "disk": _read_file_system(str(run)),
        "kernel": kernel_log.read_messages(_KERNEL_WORDS, min((line["at"] for line in started.values()), default=None)),
        "ras": diag_network.query_ras(_ras_address(ranks), float(request.get("ras_s", 0)))
        if _uses_nccl(ranks)
        else None,
    }


def find_live_ranks(run: pathlib.Path) -> dict[int, int]:
    """Return rank -> process id of the ranks of a run that are running on this node."""
    started, _ended = _read_events(run / "events.jsonl")
    return _select_live(started, files.read_json(run / "units" / "agent" / "spec.json") or {})


def _select_live(started: t.Mapping[int, t.Mapping[str, t.Any]], spec: t.Mapping[str, t.Any]) -> dict[int, int]:
    return {rank: line["pid"] for rank, line in started.items() if _is_rank(line["pid"], spec.get("marker"))}


def _read_events(file: pathlib.Path) -> tuple[dict[int, dict[str, t.Any]], dict[int, dict[str, t.Any]]]:
    """Return rank -> its newest start here, with where it is ``standing``, and rank -> the end of that start."""
    started: dict[int, dict[str, t.Any]] = {}
    ended: dict[int, dict[str, t.Any]] = {}
    try:
        text = file.read_bytes()
    except OSError:
        text = b""
    for line in files.parse_json_lines(text):
        if not isinstance(line.get("rank"), int):
            continue
        if line.get("kind") == "worker_started" and isinstance(line.get("pid"), int):
            started[line["rank"]] = line
            ended.pop(line["rank"], None)
        elif line.get("kind") in ("rank_stands", "rank_moves") and line["rank"] in started:
            started[line["rank"]]["standing"] = line if line["kind"] == "rank_stands" else None
        elif line.get("kind") == "worker_exit":
            ended[line["rank"]] = line
    return started, ended


def _is_rank(pid: int, marker: str | None) -> bool:
    """Return whether ``pid`` is still the process that was recorded, not another one that got its number."""
    return processes.start_time(pid) is not None and processes.environment_of(pid).get(processes.MARKER) == marker


def _describe_rank(
    rank: int, line: dict[str, t.Any], end: dict[str, t.Any] | None, pid: int | None
) -> dict[str, t.Any]:
    common: dict[str, t.Any] = {
        "rank": rank,
        "local_rank": line.get("local_rank"),
        "attempt": line.get("attempt"),
        "gang": line.get("gang"),
        "world_size": line.get("world_size"),
        "pid": line["pid"],
        "started_at": line.get("at"),
        "alive": pid is not None,
        "exit_code": end.get("exit_code") if end else None,
        "signal": end.get("signal") if end else None,
        "stopped": bool(end and end.get("stopped")),
        "ended_at": end.get("at") if end else None,
        "standing": line.get("standing"),
    }
    if pid is None:
        return common
    return {**common, **_describe_process(pid)}


def _describe_process(pid: int) -> dict[str, t.Any]:
    environment = processes.environment_of(pid)
    status = _read_status(pid)
    return {
        "state": status.get("State", "?")[:1],
        "waits_in": _read_proc(pid, "wchan") or None,
        "threads": int(status.get("Threads", 0) or 0),
        "memory_gib": round(int(status.get("VmRSS", "0").split()[0]) / (1 << 20), 3),
        "program": status.get("Name"),
        # PyTorch's wheels bring libnccl along, or hold it inside libtorch_cuda.
        "nccl": any(name in _read_proc(pid, "maps") for name in ("libnccl", "libtorch_cuda")),
        "environment": {
            "names": sorted(environment),
            "network": {key: value for key, value in sorted(environment.items()) if _is_shown(key)},
        },
        "limits": _read_limits(pid),
        "sockets": diag_network.list_sockets(pid),
    }


def _is_shown(name: str) -> bool:
    return name in _SHOWN_NAMES or name.startswith(_SHOWN)


def _read_status(pid: int) -> dict[str, str]:
    found = {}
    for line in _read_proc(pid, "status").splitlines():
        key, _unused, value = line.partition(":")
        found[key] = value.strip()
    return found


def _read_limits(pid: int) -> dict[str, t.Any]:
    """Return ``{memlock, nofile, nproc}`` in force: bytes or counts, or ``unlimited``."""
    found: dict[str, t.Any] = {}
    for line in _read_proc(pid, "limits").splitlines():
        name = next((short for long, short in _LIMITS.items() if line.startswith(long)), None)
        if name:
            soft = line[26:].split()[0]
            found[name] = int(soft) if soft.isdecimal() else soft
    return found


def _cpu_s(pid: int) -> float | None:
    """Return the processor seconds that all threads of a process have used; None when it is gone."""
    text = _read_proc(pid, "stat")
    if ")" not in text:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _read_memory(pid: int | None) -> dict[str, t.Any]:
    """Return ``{available_gib, limit_gib, used_gib, oom_kills}``; the last three are of the rank's control group."""
    info = {}
    for line in _read_proc("meminfo").splitlines():
        key, _unused, rest = line.partition(":")
        info[key] = rest.split()
    available = info.get("MemAvailable")
    found: dict[str, t.Any] = {"available_gib": round(int(available[0]) / (1 << 20), 2) if available else None}
    line = next((line for line in _read_proc(pid or "self", "cgroup").splitlines() if line.startswith("0::")), "")
    group = pathlib.Path("/sys/fs/cgroup", line[3:].lstrip("/"))
    for name, key in (("memory.max", "limit_gib"), ("memory.current", "used_gib")):
        value = files.read_text(group / name).strip()
        found[key] = round(int(value) / (1 << 30), 2) if value.isdecimal() else None
    kills = [
        line.split()[1]
        for line in files.read_text(group / "memory.events").splitlines()
        if line.startswith("oom_kill ")
    ]
    found["oom_kills"] = int(kills[0]) if kills else None
    return found


def _read_gpus(ranks: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, float | None]]:
    """Return how busy the GPUs of the ranks are that run, or all where it is not known which these are."""
    found = usage.query_gpus(shutil.which("nvidia-smi"))
    used = {_gpu_index(rank) for rank in ranks if rank["alive"]}
    return [gpu for gpu in found if gpu["index"] in used] or found


def _gpu_index(rank: t.Mapping[str, t.Any]) -> float | None:
    """Return the number that nvidia-smi gives to the GPU of a rank, as far as numbers name it."""
    local, listed = int(rank.get("local_rank") or 0), processes.environment_of(rank["pid"]).get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return float(local)
    names = listed.split(",")
    # One GPU in the list of each rank is its own, whatever its local rank.
    name = names[local if local < len(names) else 0].strip()
    return float(name) if name.isdecimal() else None


def _read_file_system(path: str) -> dict[str, t.Any] | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return {"size_bytes": state.f_blocks * state.f_frsize, "free_bytes": state.f_bavail * state.f_frsize}


def _uses_nccl(ranks: t.Iterable[dict[str, t.Any]]) -> bool:
    return any(item.get("nccl") for item in ranks)


def _ras_address(ranks: t.Iterable[dict[str, t.Any]]) -> str:
    """Return the address of RAS: NCCL's default, or the one in a rank's environment."""
    addresses = (item.get("environment", {}).get("network", {}).get("NCCL_RAS_ADDR") for item in ranks)
    return next((address for address in addresses if address), "localhost:28028")


def _read_proc(*parts: object) -> str:
    return files.read_text(_PROC.joinpath(*map(str, parts)))
