# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small decoder-only transformer over characters."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Shape:
    """What decides the parameters' shapes. ``context`` is the longest input in characters."""

    alphabet: str
    layers: int
    width: int
    heads: int
    context: int


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each added to its input after a layer norm."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.heads = shape.heads
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.forward_norm = nn.LayerNorm(shape.width)
        self.forward_in = nn.Linear(shape.width, 4 * shape.width)
        self.forward_out = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, length, width) to the same shape."""
        batch, length, width = x.shape
        mixed = self.query_key_value(self.attention_norm(x))
        query, key, value = mixed.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self._drop(self.attention_out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self._drop(self.forward_out(functional.gelu(self.forward_in(self.forward_norm(x)))))

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, self.dropout, self.training)


class CharTransformer(nn.Module):
    """Predicts each next character of a text."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(shape.alphabet), shape.width)
        self.places = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.blocks = nn.ModuleList(Block(shape, dropout) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, len(shape.alphabet))
        nn.init.normal_(self.places, std=0.02)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy in nats of ``samples`` (batch, context + 1), whole numbers."""
        inputs, targets = samples[:, :-1], samples[:, 1:]
        x = self.characters(inputs) + self.places[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())
