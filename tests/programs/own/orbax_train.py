# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A regression with JAX on the devices of all processes, with Orbax' own checkpoint manager: it knows nothing of a run.

``orbax_train.py FOLDER STEPS``. Each process has a part of the batch; the variables are those of torchrun.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SIZE, EVERY, PACE_S = 16, 10, 0.1


def main(folder: pathlib.Path, steps: int) -> None:
    """Train from the newest checkpoint of the folder to the last step."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", ranks, rank)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere, parts = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    weights = jax.device_put(jnp.zeros(SIZE), everywhere)

    @jax.jit
    def update(weights: jax.Array, data: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, slope = jax.value_and_grad(lambda own: jnp.mean((data @ own - data.sum(1)) ** 2))(weights)
        return weights - 0.05 * slope, loss

    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(save_interval_steps=EVERY)) as manager:
        done = manager.latest_step() or 0
        if done:
            told = jax.ShapeDtypeStruct(weights.shape, weights.dtype, sharding=everywhere)
            weights = manager.restore(done, args=ocp.args.StandardRestore({"weights": told}))["weights"]
        for step in range(done + 1, steps + 1):
            draw = np.random.default_rng(step * ranks + rank)
            own = draw.standard_normal((8, SIZE)).astype(np.float32)
            data = jax.make_array_from_process_local_data(parts, own)
            weights, loss = update(weights, data)
            time.sleep(PACE_S)
            if rank == 0:
                print(f"step {step} loss {float(loss):.4f}", flush=True)
            manager.save(step, args=ocp.args.StandardSave({"weights": weights}))
        manager.wait_until_finished()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]))
