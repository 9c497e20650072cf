# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Training with FSDP over gloo and torch.distributed.checkpoint, as torchtitan saves: ``fsdp_train.py FOLDER STEPS``.

Each rank writes its part of ``step-N``; the newest folder with ``.metadata`` is loaded.
"""

from __future__ import annotations

import pathlib
import re
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SIZE, EVERY, PACE_S = 16, 10, 0.1


def find_newest(folder: pathlib.Path) -> int:
    """Return the step of the newest checkpoint, 0 for none."""
    found = (re.fullmatch(r"step-([0-9]+)", place.parent.name) for place in folder.glob("step-*/.metadata"))
    return max((int(match[1]) for match in found if match), default=0)


def main(folder: pathlib.Path, steps: int) -> None:
    """Train from the newest checkpoint of the folder to the last step."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.Tanh(), torch.nn.Linear(SIZE, SIZE))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    done = find_newest(folder)
    if done:
        weights, states = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder / f"step-{done}")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    for step in range(done + 1, steps + 1):
        data = torch.randn(8, SIZE, generator=torch.Generator().manual_seed(step * 2 + dist.get_rank()))
        loss = (model(data) - data).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        time.sleep(PACE_S)
        if dist.get_rank() == 0:
            print(f"step {step} loss {total.item() / dist.get_world_size():.4f}", flush=True)
        if step % EVERY == 0:
            weights, states = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder / f"step-{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
