# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fit a line by gradients that all ranks average over MPI; the job's preset is ``mpi4py``."""

from __future__ import annotations

import time

import numpy as np
import progress
from mpi4py import MPI

SIZE = 16


def load(step: int) -> np.ndarray:
    """Return the weights of a checkpoint, fresh ones for step 0."""
    if not step:
        return np.zeros(SIZE)
    weights: np.ndarray = np.load(progress.of_step(step) / "weights.npy")
    return weights


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    options = progress.options(__doc__ or "").parse_args()
    world = MPI.COMM_WORLD
    # Rank 0 decides and reads, so that all ranks continue from the same step.
    step, weights = world.bcast((lambda step: (step, load(step)))(progress.newest()) if world.rank == 0 else None)
    if world.rank == 0:
        progress.note(resumed_from_step=step, world_size=world.size)
    while step < options.steps:
        started = time.monotonic()
        batch = np.random.default_rng([step, world.rank]).standard_normal((64, SIZE))
        wrong = batch @ weights - batch.sum(axis=1)
        own = np.concatenate([batch.T @ wrong / len(batch), [np.mean(wrong**2)]])
        total = np.empty_like(own)
        world.Allreduce(own, total, MPI.SUM)
        weights -= 0.1 * total[:-1] / world.size
        step += 1
        progress.keep_pace(started, options.step_time_min)
        if world.rank == 0:
            progress.note(step=step, loss=float(total[-1] / world.size))
            if step % options.save_every == 0 or step == options.steps:
                progress.of_step(step).mkdir(parents=True, exist_ok=True)
                np.save(progress.of_step(step) / "weights.npy", weights)
                progress.completed(step)


if __name__ == "__main__":
    main()
