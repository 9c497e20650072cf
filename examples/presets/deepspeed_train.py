# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small network with DeepSpeed; the job's preset is ``deepspeed_zero3``.

Parameters, gradients and optimizer state are sharded over all ranks, and each rank saves and loads its own shard. The
configuration is the JSON file that the job's ``deepspeed_config`` became: ``args: ["{deepspeed_config}"]``.
"""

from __future__ import annotations

import time

import deepspeed
import progress
import torch
from deepspeed.accelerator import get_accelerator


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    parser = progress.options(__doc__ or "")
    parser.add_argument("config", help="DeepSpeed's JSON file")
    options = parser.parse_args()
    deepspeed.init_distributed()
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=options.config):
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=options.config)
    kind = next(engine.module.parameters()).dtype
    device = get_accelerator().current_device_name()
    step = progress.newest()
    if step:
        engine.load_checkpoint(str(progress.folder()), tag=progress.of_step(step).name)
    if rank == 0:
        progress.note(resumed_from_step=step, world_size=ranks, stage=engine.zero_optimization_stage())
    while step < options.steps:
        started = time.monotonic()
        # Each step has data of its own on every rank, the same ones when it is made again.
        torch.manual_seed(step * ranks + rank)
        batch = torch.randn(32, 16).to(device, kind)
        loss = ((engine(batch) - batch.sum(1, keepdim=True)).float() ** 2).mean()
        engine.backward(loss)
        engine.step()
        step += 1
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        progress.keep_pace(started, options.step_time_min)
        if rank == 0:
            progress.note(step=step, loss=mean.item() / ranks)
        if step % options.save_every == 0 or step == options.steps:
            engine.save_checkpoint(str(progress.folder()), tag=progress.of_step(step).name, save_latest=False)
            torch.distributed.barrier()
            if rank == 0:
                progress.completed(step)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
