# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collective bandwidth of the machines and the image that will train, with proof of the network that was used.

Run by ``torchrun`` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT); gloo without a GPU, NCCL with one.
Rank 0 writes one JSON document. Exit status: 0 measured, 1 wrong values, 2 could not run, 3 timed out.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md): algbw = size / time and busbw = algbw x factor, in GB/s
of 1e9 bytes; the size is the larger of a rank's send and receive buffers. A time is the slowest rank's mean.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
import typing as t
from datetime import timedelta
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from bench_evidence import Snapshot, evidence, keep_peers, read_text  # type: ignore[import-not-found, unused-ignore]
from bench_output import print_table, write_result  # type: ignore[import-not-found, unused-ignore]

SCHEMA = 1
MIB = 1 << 20
DEFAULT_SIZES = {"gloo": [4 * MIB, 32 * MIB], "nccl": [64 * MIB, 1024 * MIB]}
# GB10 nodes freeze when a test fills the memory that CPU and GPU share (dgx-spark-playbooks PR 103).
UNIFIED_MEMORY_CAP = 4 << 30
MAX_ITERATIONS = 200
# The judged size is measured until its two best tries agree within this part, because other load can slow one try
# down. A network that is far below the expected rate and reached the same for a smaller size is slow, and is measured
# only once.
SETTLED = 0.02
MAX_TRIES = 4
FAR_BELOW = 0.75
SAME = 0.15


class Watchdog:
    """Ends the process when one phase takes too long: a hung peer is the expected failure of a bad fabric."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._timer: threading.Timer | None = None

    def phase(self, name: str, extra: float = 0.0) -> None:
        """Start phase ``name`` and give it ``extra`` seconds more than usual."""
        self.stop()
        self._timer = threading.Timer(self.seconds + extra, self._expire, [name])
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self, name: str) -> None:
        rank = os.environ.get("RANK", "?")
        line = f"allreduce_bench: rank {rank} timed out in phase {name}: a peer is missing or hangs\n"
        os.write(2, line.encode())
        os._exit(3)


class Collective:
    """One collective of ``size`` bytes on ``device``; ``run`` does it once, ``wrong`` counts false values after it.

    Values are small whole numbers, so that float32 sums are exact and every element has one right answer.
    ``group`` is the part of the ranks that takes part; None is all of them.
    """

    def __init__(self, name: str, size: int, device: torch.device, group: t.Any = None) -> None:
        self.name, self.device, self.group = name, device, group
        self.ranks: int = dist.get_world_size(group)
        self.rank: int = dist.get_rank(group)
        self.chunk: int = max(1, size // 4 // self.ranks)
        self.count: int = self.chunk * self.ranks
        send = self.chunk if name == "all_gather" else self.count
        receive = self.chunk if name == "reduce_scatter" else self.count
        self.send = torch.empty(send, dtype=torch.float32, device=device)
        self.receive = self.send if name == "all_reduce" else torch.empty(receive, dtype=torch.float32, device=device)

    @property
    def size_bytes(self) -> int:
        """What nccl-tests calls the size of this collective."""
        return 4 * self.count

    def factor(self) -> float:
        """busbw / algbw (nccl-tests doc/PERFORMANCE.md)."""
        part = (self.ranks - 1) / self.ranks
        return 2 * part if self.name == "all_reduce" else part

    def run(self) -> None:
        if self.name == "all_reduce":
            dist.all_reduce(self.send, group=self.group)
        elif self.name == "all_gather":
            dist.all_gather_into_tensor(self.receive, self.send, group=self.group)
        elif self.name == "reduce_scatter":
            dist.reduce_scatter_tensor(self.receive, self.send, group=self.group)
        else:
            dist.all_to_all_single(self.receive, self.send, group=self.group)

    def _pattern(self, start: int, length: int) -> torch.Tensor:
        period = torch.arange(start, start + 251, dtype=torch.float64, device=self.device).remainder_(251).float()
        return period.repeat(-(-length // 251))[:length]

    def fill(self) -> None:
        """Element i of the whole buffer is ``i mod 251 + rank``; what is received starts as no right answer."""
        start = self.rank * self.chunk if self.name == "all_gather" else 0
        self.receive.fill_(-1)
        self.send.copy_(self._pattern(start, self.send.numel())).add_(self.rank)

    def wrong(self) -> int:
        summed = self.ranks * (self.ranks - 1) // 2
        if self.name == "all_reduce":
            right = self._pattern(0, self.count).mul_(self.ranks).add_(summed)
        elif self.name == "reduce_scatter":
            right = self._pattern(self.rank * self.chunk, self.chunk).mul_(self.ranks).add_(summed)
        else:
            sender = torch.arange(self.ranks, dtype=torch.float32, device=self.device).repeat_interleave(self.chunk)
            start = 0 if self.name == "all_gather" else self.rank * self.chunk
            length = self.count if self.name == "all_gather" else self.chunk
            right = self._pattern(start, length)
            right = (right if self.name == "all_gather" else right.repeat(self.ranks)) + sender
        return int(torch.count_nonzero(self.receive != right).item())


def is_settled(rates: t.Sequence[float], smaller: float | None, wanted: float) -> bool:
    """Return whether the best of ``rates`` can be reported. All are in bytes per second.

    :param rates: the rates of the tries, at least one.
    :param smaller: the rate of a smaller size, None where none was measured.
    :param wanted: the expected rate.
    """
    best, *others = sorted(rates, reverse=True)
    if others:
        return others[0] >= (1 - SETTLED) * best
    same = smaller is not None and abs(best / smaller - 1) < SAME
    return same and best < FAR_BELOW * wanted


class Bench:
    """Measures sizes in turn. ``seconds`` is the time budget of one size.

    ``expected`` is the bus bandwidth (GB/s) that the next size should reach, None when it is not known.
    """

    def __init__(self, options: argparse.Namespace, device: torch.device, watchdog: Watchdog) -> None:
        self.collective, self.seconds, self.device, self.watchdog = (
            options.collective,
            options.seconds,
            device,
            watchdog,
        )
        self.group = rail_group(options.split_mod)
        self.expected: float | None = None
        self.rate: float | None = None

    def agree(self, value: float, op: t.Any) -> float:
        """The same number on every rank, so that all run equally many collectives."""
        cell = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(cell, op=op)
        agreed: float = cell.item()
        return agreed

    def _iteration_seconds(self, test: Collective, iterations: int) -> float:
        """Seconds an iteration takes on the slowest rank."""
        self.agree(0.0, dist.ReduceOp.MAX)
        start = time.perf_counter()
        for _unused in range(iterations):
            test.run()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return self.agree((time.perf_counter() - start) / iterations, dist.ReduceOp.MAX)

    def _count_wrong(self, test: Collective) -> float:
        test.fill()
        test.run()
        return self.agree(test.wrong(), dist.ReduceOp.SUM)

    def _iterations(self, test: Collective) -> int:
        """Return how often to run: at least twice where a smaller size's rate allows it, else estimated by one run."""
        expected_s = test.size_bytes / self.rate if self.rate else self._iteration_seconds(test, 1)
        fewest = 2 if self.rate and expected_s < self.seconds else 1
        return max(fewest, min(MAX_ITERATIONS, int(self.seconds / max(expected_s, 1e-9))))

    def _best_seconds(self, test: Collective, iterations: int) -> tuple[float, int]:
        """Return the best seconds of an iteration, and how often it was measured: once without an expected rate."""
        times = [self._iteration_seconds(test, iterations)]
        wanted = (self.expected or 0.0) * 1e9 / test.factor()
        while wanted and len(times) < MAX_TRIES:
            if is_settled([test.size_bytes / seconds for seconds in times], self.rate, wanted):
                break
            times.append(self._iteration_seconds(test, iterations))
        return min(times), len(times)

    def measure(self, size: int) -> dict[str, t.Any] | None:
        """One row of the result; None when a single run would take more than five times the budget."""
        if self.rate and size / self.rate > 5 * self.seconds:
            return None
        self.watchdog.phase(f"{self.collective} of {size} bytes", extra=20 * self.seconds)
        test = Collective(self.collective, size, self.device, self.group)
        # The first size also warms up; for a larger one the check at the end is enough.
        wrong = self._count_wrong(test) if self.rate is None else 0.0
        # Zeros stay zeros however often they are summed; other values would soon overflow.
        test.send.zero_()
        test.receive.zero_()
        iterations = self._iterations(test)
        seconds, tries = self._best_seconds(test, iterations)
        wrong += self._count_wrong(test)
        rate = test.size_bytes / seconds
        # Small messages measure latency and do not predict the rate of large ones.
        self.rate = rate if size >= MIB else None
        return {
            "size_bytes": test.size_bytes,
            "iterations": iterations,
            "tries": tries,
            "time_us": round(seconds * 1e6, 2),
            "algbw_gb_s": round(rate / 1e9, 6),
            "busbw_gb_s": round(rate / 1e9 * test.factor(), 6),
            "wrong_values": int(wrong),
        }


def _cgroup_free() -> int | None:
    limit, used = read_text("/sys/fs/cgroup/memory.max").strip(), read_text("/sys/fs/cgroup/memory.current").strip()
    return int(limit) - int(used) if limit.isdecimal() and used.isdecimal() else None


def largest_buffer(device: torch.device) -> int:
    """Bytes one buffer may have: a quarter of this rank's free memory (buffers, right values, comparison)."""
    lines = read_text("/proc/meminfo").splitlines()
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 1 << 30)
    limits = [available] + [free for free in [_cgroup_free()] if free is not None]
    host = min(limits) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type != "cuda":
        return host // 4
    gpu = int(torch.cuda.mem_get_info(device)[0])
    unified = bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))
    return min(gpu // 4, host // 4, UNIFIED_MEMORY_CAP) if unified else gpu // 4


def bounded_sizes(sizes: list[int], limit: int) -> tuple[list[int], list[dict[str, t.Any]]]:
    """Return sizes of at most ``limit`` bytes, and those left out; the limit itself when all are too large."""
    allowed = [size for size in sizes if size <= limit]
    reason = "more than a quarter of the free memory"
    skipped = [{"size_bytes": size, "reason": reason} for size in sizes if size > limit]
    return allowed or [limit], skipped


def gather_json(value: dict[str, t.Any], device: torch.device) -> list[dict[str, t.Any]]:
    """Every rank's ``value``, on every rank; without pickle, and without numpy, which an image may lack."""
    raw = json.dumps(value).encode()
    length = torch.tensor([len(raw)], dtype=torch.int64, device=device)
    lengths = [torch.zeros_like(length) for _unused in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    longest = max(int(cell.item()) for cell in lengths)
    padded = torch.tensor(list(raw.ljust(longest, b" ")), dtype=torch.uint8, device=device)
    texts = [torch.zeros_like(padded) for _unused in lengths]
    dist.all_gather(texts, padded)
    return [json.loads(bytes(text.tolist())) for text in texts]


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a collective and record which sockets carried it.")
    parser.add_argument(
        "--collective", default="all_reduce", choices=["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    )
    parser.add_argument("--backend", choices=["gloo", "nccl"], help="default: nccl when a GPU is visible, else gloo")
    parser.add_argument(
        "--sizes", type=int, nargs="+", metavar="BYTES", help="default: 4 and 32 MiB, 64 MiB and 1 GiB on GPUs"
    )
    parser.add_argument("--seconds", type=float, default=0.6, help="time budget of one size (default 0.6)")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds before a phase counts as hung (default 60)"
    )
    parser.add_argument(
        "--iface", help="interface that carries the collectives on this node (default: the environment's)"
    )
    parser.add_argument(
        "--split-mod", type=int, default=0, metavar="N", help="only ranks of one number modulo N communicate"
    )
    parser.add_argument("--expected", type=float, metavar="GB/s", help="measure the largest size until two tries agree")
    parser.add_argument(
        "--out",
        help="file that rank 0 writes (default: beside MUSTER_METRICS_FILE, else standard output); - for a pod's log",
    )
    options = parser.parse_args(argv)
    if any(size < 4 for size in options.sizes or []) or options.seconds <= 0 or options.timeout <= 0:
        parser.error("--sizes must be 4 or more, --seconds and --timeout more than 0")
    metrics = os.environ.get("MUSTER_METRICS_FILE")
    if options.out is None and metrics:
        options.out = str(Path(metrics).with_name("allreduce_bench.json"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if options.split_mod < 0 or (options.split_mod and world % options.split_mod):
        parser.error(f"--split-mod must divide the {world} ranks")
    options.backend = options.backend or ("nccl" if torch.cuda.is_available() else "gloo")
    return options


def start_group(options: argparse.Namespace) -> torch.device:
    """Join the process group; the interface must be set before the backend reads it."""
    if options.iface:
        os.environ["GLOO_SOCKET_IFNAME"] = options.iface
        os.environ["NCCL_SOCKET_IFNAME"] = f"={options.iface}"
    device = torch.device("cpu")
    if options.backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, timeout=timedelta(seconds=options.timeout))
    return device


def rail_group(count: int) -> t.Any:
    """This rank's group when ranks of one number modulo ``count`` stay among themselves, all groups at once.

    As nccl-tests' ``NCCL_TESTS_SPLIT="MOD count"``: with one process a GPU, each group uses one rail of the nodes. The
    figure is that of the slowest group. None when ``count`` is 0: all ranks together.
    """
    if count < 1:
        return None
    ranks = range(dist.get_world_size())
    # Every rank must make every group, in the same order.
    groups = [dist.new_group([rank for rank in ranks if rank % count == number]) for number in range(count)]
    return groups[dist.get_rank() % count]


def measure_all(options: argparse.Namespace, watchdog: Watchdog) -> dict[str, t.Any]:
    """The whole result document; the same on every rank."""
    watchdog.phase("init")
    device = start_group(options)
    bench = Bench(options, device, watchdog)
    limit = int(bench.agree(largest_buffer(device), dist.ReduceOp.MIN))
    sizes, skipped = bounded_sizes(sorted(options.sizes or DEFAULT_SIZES[options.backend]), limit)
    before = Snapshot.take()
    results = []
    for size in sizes:
        # The largest size is the one that is judged.
        bench.expected = options.expected if size == sizes[-1] else None
        row = bench.measure(size)
        if row is None:
            skipped.append({"size_bytes": size, "reason": "too slow for the time budget"})
        else:
            results.append(row)
    after = Snapshot.take()
    watchdog.phase("gathering the evidence")
    node = os.environ.get("MUSTER_NODE") or socket.gethostname()
    ranks = keep_peers(
        gather_json(evidence(dist.get_rank(), node, before, after), device), os.environ.get("MASTER_PORT", "")
    )
    return {
        "schema": SCHEMA,
        "collective": options.collective,
        "split_mod": options.split_mod,
        "backend": options.backend,
        "ranks": len(ranks),
        "nodes": len({rank["node"] for rank in ranks}),
        "results": results,
        "skipped": skipped,
        "evidence": ranks,
    }


def main(argv: list[str]) -> int:
    options = parse_arguments(argv)
    watchdog = Watchdog(options.timeout)
    if options.out not in (None, "-") and os.environ.get("RANK", "0") == "0":
        # A result of an earlier run must not be taken for this one's when this one fails.
        Path(options.out).unlink(missing_ok=True)
    try:
        result = measure_all(options, watchdog)
        if dist.get_rank() == 0:
            write_result(result, options.out)
            print_table(result)
        dist.destroy_process_group()
    except (RuntimeError, ValueError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0].rpartition("] ")[2]
        print(f"allreduce_bench: rank {os.environ.get('RANK', '?')}: {first}", file=sys.stderr, flush=True)
        return 3 if "timed out" in first.lower() or "timeout" in first.lower() else 2
    finally:
        watchdog.stop()
    return 1 if any(row["wrong_values"] for row in result["results"]) else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # As in scaling_bench.py: at exit torch's destructors wait for the peers of a broken group, or abort. By then
    # the measurement is complete and on disk.
    os._exit(status)
