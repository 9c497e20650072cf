# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The training state, saved and loaded by all ranks together.

The directory may be one that all nodes share or one on each node's own disk. In the first case rank 0 writes, in
the second the first rank of every node, so that each node could be the one that survives.
"""

from __future__ import annotations

import dataclasses
import io
import typing as t
from pathlib import Path

import checkpoints
import torch
import torch.distributed as dist
from model import Shape
from runtime import EXIT_IO, EXIT_USAGE, describe
from torch import nn
from world import World


@dataclasses.dataclass
class Training:
    """All that a step changes. ``position`` counts the samples that all ranks together have read since step 1."""

    shape: Shape
    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    position: int = 0


class Keeper:
    """Keeps a training's checkpoints in ``directory``; does nothing if that is None."""

    def __init__(self, directory: Path | None, keep: int, world: World) -> None:
        self._directory = directory
        self._keep = keep
        self._world = world
        self._damaged: set[Path] = set()
        self._last = 0
        self._writes = directory is not None and self._is_writer(directory)
        if directory is not None and self._writes:
            checkpoints.sweep(directory)

    def _is_writer(self, directory: Path) -> bool:
        return (self._world.rank if self._world.shares(directory) else self._world.local_rank) == 0

    def save(self, training: Training) -> Path | None:
        """Save ``training``; return the file, or where it lies on the first node if each node has its own.

        :raises SystemExit: some node could not write its file; its line is printed, the checkpoint before it counts.
        """
        if self._directory is None or training.step == self._last:
            return None
        payload = _pack(training, self._world)
        path, problem = None, ""
        if self._writes:
            try:
                path = checkpoints.save(self._directory, training.step, payload)
            except OSError as error:
                before = f"the one of step {self._last} is intact" if self._last else "there is none before it"
                problem = (
                    f"checkpoint of step {training.step} not written to {self._directory}, {before}: {describe(error)}"
                )
        self._world.settle(problem, EXIT_IO)
        if path is not None:
            checkpoints.prune(self._directory, path, self._keep, self._damaged)
        self._last = training.step
        return path

    def load(self, training: Training) -> None:
        """Bring ``training`` to the newest complete checkpoint that any node holds; leave it as it is without one.

        :raises SystemExit: the directory cannot be read, or the checkpoint is another model's.
        """
        if self._directory is None:
            return
        found, problem = None, ""
        if self._writes:
            try:
                found = checkpoints.newest_complete(self._directory, self._skip)
            except OSError as error:
                problem = f"the checkpoints cannot be read: {describe(error)}"
        self._world.settle(problem, EXIT_IO)
        steps = self._world.gather(found.step if found else 0)
        if max(steps) > 0:
            source = steps.index(max(steps))
            payload = _broadcast(found.payload if found and self._world.rank == source else b"", source, self._world)
            self._world.settle(_unpack(payload, training, self._world), EXIT_USAGE)
            self._last = training.step

    def _skip(self, path: Path, reason: str) -> None:
        self._damaged.add(path)
        print(f"rank {self._world.rank}: checkpoint {path.name} skipped: {reason}", flush=True)


def _pack(training: Training, world: World) -> bytes:
    content = {
        "shape": dataclasses.asdict(training.shape),
        "step": training.step,
        "position": training.position,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        # Every rank draws its own dropout masks, so each rank's generator is kept.
        "random": world.gather(_random_state(world.device)),
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _unpack(payload: bytes, training: Training, world: World) -> str:
    content: dict[str, t.Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    asked = dataclasses.asdict(training.shape)
    different = [key for key, value in content["shape"].items() if asked.get(key) != value]
    if different:
        return f"the checkpoint of step {content['step']} is of a model with other {' and '.join(different)}"
    training.model.load_state_dict(content["model"])
    training.optimizer.load_state_dict(content["optimizer"])
    training.step, training.position = content["step"], content["position"]
    if len(content["random"]) == world.size:
        _set_random_state(content["random"][world.rank], world.device)
    else:
        torch.manual_seed(torch.initial_seed() + 1_000_003 * training.step)
    return ""


def _random_state(device: torch.device) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if device.type == "cuda" else {})


def _set_random_state(state: dict[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def _broadcast(payload: bytes, source: int, world: World) -> bytes:
    size = max(world.gather(len(payload)))
    # A buffer of this process, which the tensor writes to: copying out of a tensor goes byte by byte.
    buffer = bytearray(payload) if world.rank == source else bytearray(size)
    dist.broadcast(torch.frombuffer(buffer, dtype=torch.uint8), source)
    return bytes(buffer)
