# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranks of one attempt, and how they decide things together.

A rank that leaves alone makes the others hang or fail with an error that hides the cause. So an event that one
rank alone can see (a missing text, a full disk, a signal) is sent to all ranks, and all of them act on it.

Both examples carry the same copy of this file.
"""

from __future__ import annotations

import datetime
import os
import secrets
import sys
import typing as t
from pathlib import Path

import torch
import torch.distributed as dist
from runtime import describe

T = t.TypeVar("T")


class World:
    """The process group that torchrun's variables describe, or this process alone without them."""

    def __init__(self, device: str, timeout_s: float) -> None:
        """Join the group.

        :param device: ``cpu``, ``cuda``, or ``auto``: cuda if this node has a GPU for each of its ranks.
        :param timeout_s: how long a collective may wait for another rank.
        """
        alone = "RANK" not in os.environ
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if device == "auto":
            enough = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            device = "cuda" if enough and dist.is_nccl_available() else "cpu"
        self.device = torch.device(device, self.local_rank) if device == "cuda" else torch.device("cpu")
        if device == "cuda":
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            # gloo beside NCCL carries the decisions between the hosts' processors without waiting for a GPU.
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=dist.HashStore() if alone else None,
            rank=self.rank,
            world_size=self.size,
            timeout=datetime.timedelta(seconds=timeout_s),
        )

    def gather(self, value: T) -> list[T]:
        """Return the value of every rank, by rank. Each rank must call it."""
        values: list[t.Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def settle(self, problem: str, code: int) -> None:
        """Go on if no rank has a problem; otherwise print each problem once and leave, all ranks with ``code``.

        :param problem: one line, empty if this rank has none.
        :raises SystemExit: some rank has a problem.
        """
        problems = self.gather(problem)
        if any(problems):
            if problem and problems.index(problem) == self.rank:
                print(f"rank {self.rank}: {problem}", file=sys.stderr, flush=True)
            self.leave()
            raise SystemExit(code)

    def average(self, loss: float, stop: bool) -> tuple[float, bool]:
        """Return the mean loss over all ranks, and whether any rank wants to stop: one small all-reduce for both."""
        sums = torch.tensor([loss, float(stop)], dtype=torch.float64)
        dist.all_reduce(sums)
        return float(sums[0]) / self.size, bool(sums[1] > 0)

    def shares(self, directory: Path) -> bool:
        """Return whether all ranks see the same ``directory``: rank 0 leaves a marker there and all look for it.

        Every node's first rank creates the directory; a directory that cannot be written ends the run.
        """
        marker = directory / self.gather(f".seen-by-all-{secrets.token_hex(8)}")[0]
        problem = ""
        try:
            if self.local_rank == 0:
                directory.mkdir(parents=True, exist_ok=True)
            if self.rank == 0:
                marker.touch()
        except OSError as error:
            problem = f"the checkpoint directory cannot be used: {describe(error)}"
        self.settle(problem, os.EX_IOERR)
        shared = all(self.gather(marker.exists()))
        if self.rank == 0:
            marker.unlink(missing_ok=True)
        return shared

    def leave(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
