# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A feed-forward language model over bytes, its parameters sharded over all ranks."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from world import World

BYTES = 256


@dataclasses.dataclass(frozen=True)
class Shape:
    """What decides the parameters' shapes. ``context`` is how many bytes a prediction looks back."""

    layers: int
    width: int
    context: int


class Block(nn.Module):
    """Two linear layers, added to their input."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, width) to the same shape."""
        return x + self.parts(x)


class ByteModel(nn.Module):
    """Predicts the byte after each ``context`` bytes."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, 16)
        self.entry = nn.Linear(16 * shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, dropout) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, BYTES)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy in nats of ``samples`` (batch, context + 1), whole numbers below 256."""
        x = self.entry(self.embedding(samples[:, :-1]).flatten(1))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x), samples[:, -1])


def build_sharded(shape: Shape, dropout: float, world: World) -> nn.Module:
    """Return the model with each block sharded by itself, so that only one block is whole at a time.

    All ranks must have the same random state: each initialises the whole model and keeps its part.
    """
    model = ByteModel(shape, dropout).to(world.device)
    mesh = init_device_mesh(world.device.type, (world.size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
