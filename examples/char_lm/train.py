# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small character-level transformer with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node=2 train.py --steps=300

It reads torchrun's variables, and where they are set MUSTER_CHECKPOINT_DIR, MUSTER_METRICS_FILE, MUSTER_RUN_ID
and MUSTER_ATTEMPT. Exit codes: 0 done, 2 wrong use, 65 the loss is not finite, 74 a checkpoint could not be
written, 143 stopped by SIGTERM after a checkpoint.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import math
import os
import time
from pathlib import Path

import torch
from model import CharTransformer, Shape
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
from text import Text, read_text
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from world import World


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = common_options("Train a small character-level transformer across all ranks.")
    parser.add_argument("--accumulation", type=positive, default=1, help="micro-batches per step and rank")
    parser.add_argument("--layers", type=positive, default=2)
    parser.add_argument("--width", type=positive, default=64, help="size of the hidden state, a multiple of --heads")
    parser.add_argument("--heads", type=positive, default=4)
    parser.add_argument("--context", type=positive, default=64, help="characters that a prediction may look back")
    options = parser.parse_args()
    if options.width % options.heads:
        parser.error(f"--width {options.width} is not a multiple of --heads {options.heads}")
    return options


def load_text(options: argparse.Namespace, world: World) -> Text:
    """Read the text on every rank; all leave if one of them has none or another one."""
    text, problem = Text("", array.array("i"), ""), ""
    try:
        text = read_text(find_text(options.data), options.context)
    except OSError as error:
        problem = describe(error)
    except ValueError as error:
        problem = str(error)
    world.settle(problem, EXIT_USAGE)
    first = world.gather(text.digest)[0]
    world.settle("" if text.digest == first else "its text is not the one that rank 0 has", EXIT_USAGE)
    return text


def build(options: argparse.Namespace, alphabet: str, device: torch.device) -> Training:
    """Return a fresh training, the same on every rank."""
    torch.manual_seed(options.seed)
    shape = Shape(alphabet, options.layers, options.width, options.heads, options.context)
    model = CharTransformer(shape, options.dropout).to(device)
    return Training(shape, model, torch.optim.AdamW(model.parameters(), lr=options.lr))


class Trainer:
    """Makes steps: reads this rank's samples, averages the gradients over all ranks, updates the parameters."""

    def __init__(self, options: argparse.Namespace, training: Training, text: Text, world: World) -> None:
        self._options = options
        self._training = training
        self._world = world
        self._tokens = torch.frombuffer(text.tokens, dtype=torch.int32).long()
        self._windows = text.windows(options.context)
        self._offsets = torch.arange(options.context + 1)
        self._samples_per_step = world.size * options.batch_size * options.accumulation
        self.tokens_per_step = self._samples_per_step * options.context
        self._parallel: nn.Module = DistributedDataParallel(training.model, gradient_as_bucket_view=True)

    def step(self) -> tuple[float, float]:
        """Make one step; return this rank's mean loss in nats and the learning rate."""
        training, options = self._training, self._options
        lr = learning_rate(options.lr, training.step + 1)
        for group in training.optimizer.param_groups:
            group["lr"] = lr
        training.optimizer.zero_grad()
        micro_batches = self._samples().split(options.batch_size)
        total = torch.zeros((), device=self._world.device)
        for index, samples in enumerate(micro_batches, start=1):
            last = index == len(micro_batches)
            # Only the last micro-batch's backward pass sends the gradients to the other ranks.
            with contextlib.nullcontext() if last else self._parallel.no_sync():
                loss = self._parallel(samples.to(self._world.device)) / len(micro_batches)
                loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()
        training.step += 1
        training.position += self._samples_per_step
        return float(total), lr

    def _samples(self) -> torch.Tensor:
        """Return this rank's samples of the step, (batch size * accumulation, context + 1)."""
        count = self._options.batch_size * self._options.accumulation
        position = self._training.position
        starts = windows_of_rank(self._options.seed, position, self._world.rank, count, self._windows)
        return self._tokens[torch.tensor(starts)[:, None] + self._offsets]


def prepare(options: argparse.Namespace, world: World) -> tuple[Trainer, Training, Keeper]:
    """Build the model and bring it to the newest checkpoint."""
    text = load_text(options, world)
    training = build(options, text.alphabet, world.device)
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
