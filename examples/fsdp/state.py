# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sharded training state, saved and loaded by all ranks together with torch.distributed.checkpoint.

Each rank writes the shards it holds. torch.distributed.checkpoint finds the parts again when the world size is
another one; whether a checkpoint may be used at all is decided by shards.py.
"""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import shards
import torch
import torch.distributed.checkpoint as dcp
from model import Shape
from runtime import EXIT_IO, EXIT_USAGE, describe
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
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
    """Keeps a training's checkpoints in ``root``, a directory that all nodes share; does nothing if that is None."""

    def __init__(self, root: Path | None, keep: int, world: World) -> None:
        self._root = root
        self._keep = keep
        self._world = world
        self._damaged: set[Path] = set()
        self._last = 0
        self._leads = world.rank == 0
        if root is not None and not world.shares(root):
            problem = f"{root} is not one directory for all nodes: sharded checkpoints need shared storage"
            world.settle(problem, EXIT_USAGE)

    def save(self, training: Training) -> Path | None:
        """Save ``training`` and return the checkpoint's directory, None if there is nothing to save.

        :raises SystemExit: some rank could not write; its line is printed, the checkpoint before it counts.
        """
        if self._root is None or training.step == self._last:
            return None
        directory = shards.directory_of(self._root, training.step)
        self._try(training.step, lambda: self._leads and shards.discard(directory))
        writer = dcp.FileSystemWriter(directory, sync_files=True)
        names: set[str] = {".metadata"}

        def write() -> None:
            metadata = dcp.save(_state(training, self._world, own_random=True), storage_writer=writer)
            names.update(place.relative_path for place in (metadata.storage_data or {}).values())

        self._try(training.step, write)
        self._finish(training, directory, self._world.gather(names)[0])
        if self._leads:
            shards.prune(self._root, training.step, self._keep, self._damaged)
        self._last = training.step
        return directory

    def _finish(self, training: Training, directory: Path, names: set[str]) -> None:
        """Check in the files ``names``, each rank a part of them, and let rank 0 write the manifest."""
        world = self._world
        mine: list[shards.Shard] = []

        def check_in() -> None:
            own = shards.part_of(names, world.rank, world.size)
            mine.extend(shards.describe_file(directory / name) for name in own)

        self._try(training.step, check_in)
        every = tuple(shard for part in world.gather(mine) for shard in part)
        shape = dataclasses.asdict(training.shape)
        manifest = shards.Manifest(training.step, training.position, world.size, shape, every)
        self._try(training.step, lambda: self._leads and shards.write_manifest(directory, manifest))

    def _try(self, step: int, action: t.Callable[[], object]) -> None:
        """Run ``action`` on this rank; all ranks leave if an error of the system stops one of them."""
        problem = ""
        try:
            action()
        except (OSError, CheckpointException) as error:
            before = f"the one of step {self._last} is intact" if self._last else "there is none before it"
            problem = f"checkpoint of step {step} not written to {self._root}, {before}: {_reason(error)}"
        self._world.settle(problem, EXIT_IO)

    def load(self, training: Training) -> None:
        """Bring ``training`` to the newest complete checkpoint; leave it as it is without one.

        :raises SystemExit: the directory cannot be read, or the checkpoint is another model's.
        """
        found = self._newest_complete() if self._root is not None else None
        if found is None:
            return
        directory, manifest = found
        asked = dataclasses.asdict(training.shape)
        different = sorted(key for key in asked | manifest.shape if asked.get(key) != manifest.shape.get(key))
        problem = f"the checkpoint of step {manifest.step} is of a model with other {' and '.join(different)}"
        self._world.settle(problem if different else "", EXIT_USAGE)
        same_world = manifest.world_size == self._world.size
        reader = dcp.FileSystemReader(directory)
        state = _state(training, self._world, own_random=same_world)
        # The random state of a GPU is in no checkpoint of a run on CPUs.
        saved = reader.read_metadata().state_dict_metadata
        state["random"] = {name: value for name, value in state["random"].items() if f"random.{name}" in saved}
        dcp.load(state, storage_reader=reader)
        set_state_dict(
            training.model,
            training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        if same_world:
            _set_random_state(state["random"], self._world)
        else:
            torch.manual_seed(torch.initial_seed() + 1_000_003 * manifest.step)
        training.step, training.position = manifest.step, manifest.position
        self._last = manifest.step

    def _newest_complete(self) -> tuple[Path, shards.Manifest] | None:
        """Return the newest checkpoint that every rank found its part of complete."""
        world = self._world
        found: list[Path] = []
        problem = ""
        try:
            found = shards.candidates(self._root) if world.rank == 0 and self._root else []
        except OSError as error:
            problem = f"the checkpoints cannot be read: {describe(error)}"
        world.settle(problem, EXIT_IO)
        for directory in world.gather(found)[0]:
            manifest, reason = self._examine(directory)
            reasons = [text for text in world.gather(reason) if text]
            if not reasons and manifest:
                return directory, manifest
            self._damaged.add(directory)
            if world.rank == 0:
                print(f"checkpoint {directory.name} skipped: {reasons[0]}", flush=True)
        return None

    def _examine(self, directory: Path) -> tuple[shards.Manifest | None, str]:
        try:
            manifest = shards.read_manifest(directory)
        except shards.TornError as error:
            return None, str(error)
        by_name = {shard.name: shard for shard in manifest.shards}
        mine = shards.part_of(by_name, self._world.rank, self._world.size)
        return manifest, shards.check(directory, [by_name[name] for name in mine])


def _state(training: Training, world: World, own_random: bool) -> dict[str, t.Any]:
    """Return what torch.distributed.checkpoint shall save or fill: sharded tensors, and this rank's random state."""
    model, optimizer = get_state_dict(training.model, training.optimizer)
    return {"model": model, "optimizer": optimizer, "random": _random_state(world) if own_random else {}}


def _random_state(world: World) -> dict[str, torch.Tensor]:
    """Return the generators of this rank, from which it draws its dropout masks: the CPU's, and its GPU's."""
    state = {f"rank{world.rank}": torch.get_rng_state()}
    return state | ({f"cuda{world.rank}": torch.cuda.get_rng_state()} if world.device.type == "cuda" else {})


def _set_random_state(state: dict[str, torch.Tensor], world: World) -> None:
    torch.set_rng_state(state[f"rank{world.rank}"])
    if f"cuda{world.rank}" in state:
        torch.cuda.set_rng_state(state[f"cuda{world.rank}"])


def _reason(error: OSError | CheckpointException) -> str:
    """Return the cause as one line; torch.distributed.checkpoint wraps each rank's own error."""
    if isinstance(error, OSError):
        return describe(error)
    causes = [cause for cause, _ in error.failures.values()]
    errors = [cause for cause in causes if isinstance(cause, OSError)]
    return describe(errors[0]) if errors else str(causes[0]).splitlines()[0]
