# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small language model whose parameters, gradients and optimizer state are sharded over all ranks (FSDP2).

    torchrun --nproc-per-node=2 train.py --steps=300

It reads torchrun's variables, and where they are set MUSTER_CHECKPOINT_DIR (on storage that all nodes share),
MUSTER_METRICS_FILE, MUSTER_RUN_ID and MUSTER_ATTEMPT. Exit codes: 0 done, 2 wrong use, 65 the loss is not finite,
74 a checkpoint could not be written, 143 stopped by SIGTERM after a checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import time
from pathlib import Path

import torch
from model import Shape, build_sharded
from runtime import (
    EXIT_DATA,
    EXIT_TERMINATED,
    EXIT_USAGE,
    Reporter,
    StopFlag,
    common_options,
    describe,
    exit_after,
    find_text,
    keep_pace,
    learning_rate,
    positive,
    windows_of_rank,
)
from state import Keeper, Training
from torch import nn
from world import World


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = common_options("Train a small sharded language model across all ranks.")
    parser.add_argument("--layers", type=positive, default=2)
    parser.add_argument("--width", type=positive, default=128)
    parser.add_argument("--context", type=positive, default=16, help="bytes that a prediction looks back")
    parser.set_defaults(batch_size=256)
    return parser.parse_args()


def load_text(options: argparse.Namespace, world: World) -> bytes:
    """Read the text on every rank; all leave if one of them has none or another one."""
    text, problem = b"", ""
    try:
        text = find_text(options.data).read_bytes()
    except OSError as error:
        problem = describe(error)
    else:
        if len(text) <= options.context:
            problem = f"the text has {len(text)} bytes, a sample needs {options.context + 1}"
    world.settle(problem, EXIT_USAGE)
    digest = hashlib.sha256(text).hexdigest()
    different = digest != world.gather(digest)[0]
    world.settle("its text is not the one that rank 0 has" if different else "", EXIT_USAGE)
    return text


class Trainer:
    """Makes steps. FSDP gathers a block's parameters when it is used and scatters its gradients afterwards."""

    def __init__(self, options: argparse.Namespace, training: Training, text: bytes, world: World) -> None:
        self._options = options
        self._training = training
        self._world = world
        self._text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self._windows = len(text) - options.context
        self._offsets = torch.arange(options.context + 1)
        # A sample predicts one byte, so it counts as one token.
        self.tokens_per_step = world.size * options.batch_size

    def step(self) -> tuple[float, float]:
        """Make one step; return this rank's mean loss in nats and the learning rate."""
        training, options = self._training, self._options
        lr = learning_rate(options.lr, training.step + 1)
        for group in training.optimizer.param_groups:
            group["lr"] = lr
        training.optimizer.zero_grad()
        loss = training.model(self._samples().to(self._world.device))
        loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()
        training.step += 1
        training.position += self.tokens_per_step
        return float(loss.detach()), lr

    def _samples(self) -> torch.Tensor:
        """Return this rank's samples of the step, (batch size, context + 1)."""
        options, position = self._options, self._training.position
        starts = windows_of_rank(options.seed, position, self._world.rank, options.batch_size, self._windows)
        return self._text[torch.tensor(starts)[:, None] + self._offsets]


def prepare(options: argparse.Namespace, world: World) -> tuple[Trainer, Training, Keeper]:
    """Build the model and bring it to the newest checkpoint."""
    text = load_text(options, world)
    torch.manual_seed(options.seed)
    shape = Shape(options.layers, options.width, options.context)
    model = build_sharded(shape, options.dropout, world)
    training = Training(shape, model, torch.optim.AdamW(model.parameters(), lr=options.lr))
    # The parameters start equal everywhere; from here on every rank draws its own dropout masks.
    torch.manual_seed(options.seed + 1 + world.rank)
    directory = os.environ.get("MUSTER_CHECKPOINT_DIR")
    keeper = Keeper(Path(directory) if directory else None, options.keep, world)
    keeper.load(training)
    return Trainer(options, training, text, world), training, keeper


def run(options: argparse.Namespace) -> int:
    """Train from the newest checkpoint to the last step; return the exit code."""
    world = World(options.device, options.timeout)
    trainer, training, keeper = prepare(options, world)
    reporter = Reporter(world.rank == 0, options.print_every, options.steps)
    reporter.started(training.step, world.size)
    stop = StopFlag(options.grace)
    stopping = False
    while training.step < options.steps and not stopping:
        started = time.monotonic()
        own_loss, lr = trainer.step()
        loss, stopping = world.average(own_loss, stop.requested)
        if not math.isfinite(loss):
            reporter.say(f"the loss of step {training.step} is {loss}: try a lower --lr")
            return EXIT_DATA
        if stopping:
            stop.reached()
        reporter.step(training.step, loss, trainer.tokens_per_step, keep_pace(started, options.step_time_min), lr)
        if stopping or training.step == options.steps or training.step % options.checkpoint_every == 0:
            with stop.saving:
                reporter.saved(training.step, keeper.save(training))
    if stopping:
        reporter.say(f"stopped by SIGTERM after step {training.step}")
    world.leave()
    return EXIT_TERMINATED if stopping else 0


if __name__ == "__main__":
    arguments = parse_options()
    exit_after(lambda: run(arguments))
