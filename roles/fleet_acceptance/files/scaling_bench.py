# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a data-parallel training step takes with a fixed batch per rank, and where its time goes.

Run by ``torchrun``; gloo without a GPU, NCCL with one. Two measurements follow each other on the same model:

* ``step_s``: whole steps as they are trained, with DistributedDataParallel, which sends gradients during the backward
  pass. The median of rounds, of the slowest rank.
* phases: steps whose parts wait for each other, so that each can be timed (medians, averaged over the ranks). input (a
  batch is gathered and copied to the device), compute (forward, backward, optimizer), straggler (waiting at a barrier
  for the slowest rank), communication (all-reduce of all gradients in buckets, with nothing to hide behind).

Rank 0 appends ``{"at", "acceptance": document}`` to MUSTER_METRICS_FILE, or prints it. Exit status: 0 measured,
2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import sys
import time
import typing as t
from datetime import timedelta

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from torch import nn
from torch.nn.parallel import DistributedDataParallel  # type: ignore[import-not-found, unused-ignore]

SCHEMA = 1
# As DistributedDataParallel's own buckets.
BUCKET_BYTES = 25 << 20
POOL = 2048
WARM_UP = 3
ROUNDS = 8
LEAST_STEPS, MOST_STEPS = 2, 100
PHASES = ("input_s", "compute_s", "straggler_s", "communication_s")
SIZES = {"cpu": {"width": 384, "layers": 4, "batch": 64}, "cuda": {"width": 4096, "layers": 16, "batch": 512}}


class Model(nn.Module):  # type: ignore[misc, unused-ignore]
    """Layers of equal width, each added to its input; the loss is the distance to its own input."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _unused in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for layer in self.layers:
            y = y + torch.relu(layer(y))
        return (y - x).square().mean()


class Bench:
    """A model, its data, and the two ways to make a step."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.device, self.batch, self.world = device, options.batch, dist.get_world_size()
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        torch.manual_seed(1)
        model = Model(options.width, options.layers).to(device=device, dtype=kind)
        self.parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        self.parameters = [item for item in model.parameters() if item.requires_grad]
        # In the host's memory, as a loader has it; every rank draws its own samples.
        self.pool = torch.randn(POOL, options.width, dtype=kind)
        self.chooser = torch.Generator().manual_seed(1 + dist.get_rank())

    def samples(self) -> torch.Tensor:
        chosen = torch.randint(POOL, (self.batch,), generator=self.chooser)
        return self.pool[chosen].to(self.device)

    def settle(self) -> float:
        """Wait for the device and return the time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.parallel(self.samples()).backward()
        self.optimizer.step()

    def phased(self) -> tuple[float, ...]:
        """Make one step in phases that do not overlap; return the seconds of each in the order of PHASES."""
        begin = self.settle()
        batch = self.samples()
        given = self.settle()
        self.optimizer.zero_grad()
        with self.parallel.no_sync() if self.world > 1 else contextlib.nullcontext():
            self.parallel(batch).backward()
        computed = self.settle()
        self.meet()
        met = self.settle()
        self.exchange()
        exchanged = self.settle()
        self.optimizer.step()
        end = self.settle()
        return given - begin, computed - given + end - exchanged, met - computed, exchanged - met

    def meet(self) -> None:
        """Wait until every rank is here."""
        if self.world > 1:
            dist.all_reduce(torch.zeros(1, device=self.device))

    def exchange(self) -> None:
        """Average all gradients, bucket by bucket."""
        if self.world == 1:
            return
        bucket: list[torch.Tensor] = []
        for index, parameter in enumerate(self.parameters, start=1):
            bucket.append(parameter.grad)
            full = sum(item.numel() * item.element_size() for item in bucket) >= BUCKET_BYTES
            if full or index == len(self.parameters):
                flat = torch.cat([item.reshape(-1) for item in bucket])
                dist.all_reduce(flat)
                flat /= self.world
                for item, part in zip(bucket, flat.split([item.numel() for item in bucket]), strict=True):
                    item.copy_(part.view_as(item))
                bucket = []

    def agreed(self, value: float) -> float:
        """Return the largest value of any rank."""
        cell = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(cell, op=dist.ReduceOp.MAX)
        return float(cell.item())

    def timed(self, work: t.Callable[[], t.Any], count: int) -> tuple[float, list[t.Any]]:
        """Return the seconds of one ``work``, on the mean of this rank, and what each gave."""
        self.meet()
        begin = self.settle()
        found = [work() for _unused in range(count)]
        return (self.settle() - begin) / count, found


def measure(bench: Bench, seconds: float) -> dict[str, t.Any]:
    """Return the result document; the same on every rank."""
    bench.timed(bench.step, WARM_UP)
    bench.timed(bench.phased, WARM_UP)
    estimate, _unused = bench.timed(bench.step, WARM_UP)
    steps = max(LEAST_STEPS, min(MOST_STEPS, int(seconds / ROUNDS / max(bench.agreed(estimate), 1e-6))))
    whole, parts = [], []
    # In turns, so that whatever else the machine does falls on both alike; medians, so that it counts for little.
    for _unused in range(ROUNDS):
        whole.append(bench.timed(bench.step, steps)[0])
        parts += bench.timed(bench.phased, steps)[1]
    step_s = statistics.median(whole)
    means = [statistics.median(column) for column in zip(*parts, strict=True)]
    node = os.environ.get("MUSTER_NODE") or socket.gethostname()
    mine = {"rank": dist.get_rank(), "node": node, "uid": os.getuid(), "step_s": step_s}
    mine |= dict(zip(PHASES, means, strict=True))
    ranks = gathered({key: round(item, 7) if isinstance(item, float) else item for key, item in mine.items()}, bench)
    slowest = max(item["step_s"] for item in ranks)
    return {
        "schema": SCHEMA,
        "ranks": len(ranks),
        "nodes": len({item["node"] for item in ranks}),
        "device": bench.device.type,
        "batch_per_rank": bench.batch,
        "parameters": sum(item.numel() for item in bench.parameters),
        "steps": steps * ROUNDS,
        "step_s": slowest,
        "samples_per_s": round(len(ranks) * bench.batch / slowest, 3),
        **{key: round(sum(item[key] for item in ranks) / len(ranks), 7) for key in PHASES},
        "per_rank": ranks,
    }


def gathered(value: dict[str, t.Any], bench: Bench) -> list[dict[str, t.Any]]:
    """Return every rank's ``value`` by rank; without pickle and numpy, which an image may lack."""
    raw = json.dumps(value).encode()
    length = int(bench.agreed(float(len(raw))))
    padded = torch.tensor(list(raw.ljust(length, b" ")), dtype=torch.uint8, device=bench.device)
    texts = [torch.zeros_like(padded) for _unused in range(bench.world)]
    dist.all_gather(texts, padded)
    return [json.loads(bytes(text.tolist())) for text in texts]


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time training steps with a fixed batch per rank.")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each of the two measurements (default 5)")
    parser.add_argument("--width", type=int, help="width of the model (default 384, 4096 on GPUs)")
    parser.add_argument("--layers", type=int, help="its layers (default 4, 16 on GPUs)")
    parser.add_argument("--batch", type=int, help="samples per rank (default 64, 512 on GPUs)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a rank without a GPU (default 1)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a rank waits for the others")
    options = parser.parse_args(argv)
    usual = SIZES["cuda" if torch.cuda.is_available() else "cpu"]
    for key, value in usual.items():
        setattr(options, key, getattr(options, key) or value)
    if options.seconds <= 0 or min(options.width, options.layers, options.batch, options.threads) < 1:
        parser.error("all numbers must be positive")
    return options


def write(document: dict[str, t.Any]) -> None:
    """Append the metrics lines with one write each, or print the document."""
    now = round(time.time(), 3)
    progress = {"at": now, "step": document["steps"], "samples_per_s": document["samples_per_s"]}
    place = os.environ.get("MUSTER_METRICS_FILE")
    if not place:
        print(json.dumps(document), flush=True)
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "ab", buffering=0) as handle:
        for line in (progress, {"at": now, "acceptance": document}):
            handle.write(json.dumps(line).encode() + b"\n")


def main(argv: list[str]) -> int:
    options = parse_arguments(argv)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    else:
        # Ranks of several "nodes" on one machine would otherwise take each other's processors.
        torch.set_num_threads(options.threads)
    try:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout))
        document = measure(Bench(options, device), options.seconds)
        if dist.get_rank() == 0:
            write(document)
        dist.destroy_process_group()
    except (RuntimeError, ValueError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        print(f"scaling_bench: rank {os.environ.get('RANK', '?')}: {first}", file=sys.stderr, flush=True)
        return 2
    return 0


def end(status: int) -> t.NoReturn:
    """End this rank with ``status`` at once.

    At exit torch's own destructors wait for the peers of a broken group; a rank that aborted at its end was seen after
    a sound one, too. The measurement is complete and on disk by then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end(main(sys.argv[1:]))
