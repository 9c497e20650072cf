# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the lines that NCCL, nccl-tests and launchers write, for tests of their readers."""

from __future__ import annotations

import io
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.file import (
    FileDiagnosis,
    diagnose_stream,
)

# Each puts something before a line; {rank} and {host} are the writer's.
PREFIXES = {
    "plain": "",
    "mpirun": "[1,{rank}]<stdout>:",
    "srun": "{rank}: ",
    "ray": "(RayWorkerWrapper pid=2981, ip=10.0.0.2) ",
    "ray twice": "(EngineCore_DP0 pid=2301) (RayWorkerWrapper pid=2981, ip=10.0.0.2) ",
    "ray coloured": "\x1b[36m(TrainWorker pid=77)\x1b[0m ",
    "torchrun": "[default{rank}]:",
    "kubectl": "[pod/train-{rank}-abcde/worker] ",
    "kubectl times": "2026-11-21T10:11:12.123456789Z ",
    "compose": "worker-{rank}  | ",
    "pdsh": "{host}: ",
    "logging": "[2026-11-21 10:11:12,345] ",
}


def info(text: str, host: str = "node-1", pid: int = 100, dev: int = 0, tid: int | None = None) -> str:
    """One INFO line."""
    return f"{host}:{pid}:{tid or pid + 1} [{dev}] NCCL INFO {text}"


def warn(text: str, source: str = "init.cc:497", host: str = "node-1", pid: int = 100, stamp: str = "") -> str:
    """One WARN line; ``stamp`` is the time that NCCL 2.25 and later put first."""
    return f"{stamp}{host}:{pid}:{pid + 1} [0] {source} NCCL WARN {text}"


def prefixed(style: str, line: str, rank: int = 0, host: str = "node-1") -> str:
    """The line behind a launcher's prefix."""
    return PREFIXES[style].format(rank=rank, host=host) + line


def judged(*lines: str, name: str = "some.log") -> FileDiagnosis:
    """The diagnosis of a log of these lines."""
    return judged_bytes(("\n".join(lines) + "\n").encode(), name)


def judged_bytes(content: bytes, name: str = "some.log") -> FileDiagnosis:
    """The diagnosis of a file of these bytes."""
    return diagnose_stream(io.BytesIO(content), name)


def codes(found: FileDiagnosis) -> list[str]:
    """The codes that decided."""
    return [cause.code for cause in found.causes]


def ring(
    via: str, nodes: int = 2, local: int = 2, prefix: str = "Channel 00/0 : ", inside: str = "P2P/CUMEM"
) -> t.Iterator[str]:
    """Start-up and ring channels of ``nodes`` x ``local`` ranks as NCCL 2.18 and later write them."""
    total = nodes * local
    for rank in range(total):
        host, pid, dev = f"node-{rank // local + 1}", 100 + rank, rank % local
        yield info(f"Bootstrap: Using eth0:10.0.0.{rank // local + 1}<0>", host, pid, dev)
        comm = f"comm 0x55{rank:04x} rank {rank} nranks {total} cudaDev {dev} nvmlDev {dev} busId {dev}a000 commId 0xab"
        yield info(f"ncclCommInitRank {comm} - Init START", host, pid, dev)
        for first, second, way in ((rank, (rank + 1) % total, "send"), ((rank - 1) % total, rank, "receive")):
            pair = f"{first}[{first % local}] -> {second}[{second % local}]"
            if first // local != second // local:
                yield info(f"{prefix}{pair} [{way}] via {via}", host, pid, dev)
            elif way == "send":
                yield info(f"{prefix}{pair} via {inside}", host, pid, dev)
        yield info(f"ncclCommInitRank {comm} - Init COMPLETE", host, pid, dev)


_HALF = "time   algbw   busbw #wrong"
HEADER = (
    f"#{'out-of-place':>74}{'in-place':>33}",
    f"#       size         count      type   redop    root     {_HALF}     {_HALF}",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
)


def row(size: int, busbw: float, wrong: str = "0", second: float | None = None) -> str:
    """One row of nccl-tests, all_reduce on four ranks (bus bandwidth 1.5 times the algorithm's)."""
    halves = (
        f"{size / (rate / 1.5 * 1e3 or 1):8.2f} {rate / 1.5:7.2f} {rate:7.2f} {wrong:>6}"
        for rate in (busbw, busbw if second is None else second)
    )
    return f"{size:12d}  {size // 4:12d}     float     sum      -1 {' '.join(halves)}"


def rank_line(rank: int, host: str, device: str = "NVIDIA H100 80GB HBM3", pid: int | None = None) -> str:
    """One line of nccl-tests' list of ranks."""
    return f"#  Rank {rank:2d} Group  0 Pid {pid or 100 + rank} on {host:>10} device  {rank % 8} [0000:18:00] {device}"
