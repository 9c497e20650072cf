# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small network with Accelerate; the job's preset is ``accelerate``.

The model, the optimizer and the random state of every rank are saved by ``save_state`` and loaded by ``load_state``.
"""

from __future__ import annotations

import time

import progress
import torch
from accelerate import Accelerator


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    options = progress.options(__doc__ or "").parse_args()
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    torch.manual_seed(1 + accelerator.process_index)
    step = progress.newest()
    if step:
        accelerator.load_state(str(progress.of_step(step)))
    if accelerator.is_main_process:
        progress.note(resumed_from_step=step, world_size=accelerator.num_processes)
    while step < options.steps:
        started = time.monotonic()
        batch = torch.randn(32, 16, device=accelerator.device)
        loss = ((model(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        mean = accelerator.reduce(loss.detach(), reduction="mean").item()
        progress.keep_pace(started, options.step_time_min)
        if accelerator.is_main_process:
            progress.note(step=step, loss=mean)
        if step % options.save_every == 0 or step == options.steps:
            accelerator.save_state(str(progress.of_step(step)))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                progress.completed(step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
