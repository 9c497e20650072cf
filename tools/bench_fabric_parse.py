# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how fast 64 ranks' NCCL INFO logs (200 MB) are judged, and in how much memory.

The logs are generated from the shapes of NCCL's own lines: start-up, graph, channels of several communicators, and the
per-collective lines that fill a log of ``NCCL_DEBUG_SUBSYS=ALL``. The judge runs in a process of its own, whose peak
resident size is what the kernel says. Prints one line per gate, ending in PASS or FAIL; exit status 1 when one fails.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

RANKS = 64
LOCAL = 8
GATE_SECONDS = 10.0
GATE_MIB = 200.0


def start_up(rank: int, head: str) -> list[str]:
    """What one rank prints before its first channel."""
    hcas = " ".join(f"[{index}]mlx5_{index}:1/IB" for index in range(8))
    return [
        f"{head}cudaDriverVersion 12080",
        f"{head}NCCL_SOCKET_IFNAME set by environment to =eth0",
        f"{head}Bootstrap: Using eth0:10.0.0.{rank // LOCAL}<0>",
        f"{head}NET/IB : Using {hcas} [RO]; OOB eth0:10.0.0.{rank // LOCAL}<0>",
        f"{head}Using network IB",
        f"{head}DMA-BUF is available on GPU device {rank % LOCAL}",
    ]


def communicator(rank: int, head: str, comm: int) -> list[str]:
    """One communicator: start, graph, ring and tree channels, end."""
    local, node = rank % LOCAL, rank // LOCAL
    following, before = (rank + 1) % RANKS, (rank - 1) % RANKS
    what = f"ncclCommInitRankConfig comm 0x55{comm:06x}{rank:04x} rank {rank} nranks {RANKS} cudaDev {local}"
    lines = [f"{head}{what} nvmlDev {local} busId {local + 1}a000 commId 0xabc{comm:08x} - Init START"]
    lines += [f"{head}Channel {c:02d}/32 : {'    '.join(str(r) for r in range(RANKS))}" for c in range(4)]
    lines.append(f"{head}Trees " + " ".join(f"[{c}] {following}/-1/-1->{rank}->{before}" for c in range(32)))
    for channel in range(32):
        for first, second, way in ((rank, following, "send"), (before, rank, "receive")):
            devices = f"{first}[{first % LOCAL}] -> {second}[{second % LOCAL}]"
            if first // LOCAL != second // LOCAL:
                lines.append(f"{head}Channel {channel:02d}/0 : {devices} [{way}] via NET/IB/{channel % 8}/GDRDMA")
            elif way == "send":
                lines.append(f"{head}Channel {channel:02d}/0 : {devices} via P2P/CUMEM")
    for peer in range(LOCAL, RANKS, LOCAL):
        other = (rank + peer) % RANKS
        devices = f"{rank}[{local}] -> {other}[{other % LOCAL}]"
        lines += [
            f"{head}Channel {c:02d}/1 : {devices} [send] via NET/IB/{local}({rank})/GDRDMA/Shared" for c in range(8)
        ]
    lines.append(f"{head}{what} nvmlDev {local} busId {local + 1}a000 commId 0xabc{comm:08x} - Init COMPLETE")
    lines.append(f"{head}Connected all rings, use ring PXN 1 GDR 1 on node {node}")
    return lines


def collectives(head: str, count: int, start: int) -> list[str]:
    """What NCCL prints for every collective when all subsystems are on."""
    lines = []
    for index in range(start, start + count):
        buffers = f"sendbuff 0x7f{index:08x}0000 recvbuff 0x7e{index:08x}0000 count {1 << (index % 28)}"
        lines.append(
            f"{head}AllReduce: opCount {index:x} {buffers} datatype 7 op 0 root 0 comm 0x5500000000 [nranks=64]"
        )
        lines.append(
            f"{head}AllReduce: {1 << (index % 28)} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..31}}"
        )
    return lines


def write_log(path: Path, rank: int, size: int) -> None:
    """Write one rank's log of at least ``size`` bytes."""
    head = f"gpu-node-{rank // LOCAL:02d}:{4000 + rank}:{9000 + rank} [{rank % LOCAL}] NCCL INFO "
    with path.open("w", encoding="utf-8") as out:
        written = out.write("\n".join(start_up(rank, head)) + "\n")
        comm = 0
        while written < size:
            block = [*communicator(rank, head, comm), *collectives(head, 400, comm * 400)]
            written += out.write("\n".join(block) + "\n")
            comm += 1


def judge(folder: Path) -> dict[str, t.Any]:
    """Judge every file of a folder in this process; return seconds, peak resident MiB and what was found."""
    from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.file import diagnose_stream

    before = time.perf_counter()
    found = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as stream:
            found.append(diagnose_stream(stream, path.name))
    seconds = time.perf_counter() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    verdicts = sorted({f"{one.transport} {one.transport_verdict}" for one in found})
    return {"seconds": seconds, "peak_mib": peak, "files": len(found), "verdicts": verdicts}


def main() -> int:
    """Generate, judge in a child, compare with the gates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="size of all logs together, 10^6 bytes")
    parser.add_argument("--one-file", action="store_true", help="all ranks in one file, as mpirun writes them")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        print(json.dumps(judge(options.judge)))
        return 0
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        for rank in range(RANKS):
            write_log(folder / f"nccl.{rank:02d}.log", rank, options.megabytes * 10**6 // RANKS)
        if options.one_file:
            parts = sorted(folder.iterdir())
            with (folder / "all.log").open("wb") as out:
                for part in parts:
                    out.write(part.read_bytes())
                    part.unlink()
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        child = subprocess.run(
            [sys.executable, __file__, "--judge", name], check=True, capture_output=True, text=True, timeout=300
        )
    result = json.loads(child.stdout)
    print(f"{result['files']} files, {size:.0f} MB, found: {', '.join(result['verdicts'])}")
    failed = result["verdicts"] != ["IB rdma_gdr"]
    for what, value, gate in (("seconds", result["seconds"], GATE_SECONDS), ("MiB", result["peak_mib"], GATE_MIB)):
        failed |= value > gate
        word = "PASS" if value <= gate else "FAIL"
        print(f"judge 64 ranks' INFO logs: {value:.1f} {what}, gate {gate:g} {what}: {word}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
