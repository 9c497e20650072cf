# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints its progress in the form that is named, and reports nothing: ``printing_program.py FORM``, on each node."""

from __future__ import annotations

import os
import sys
import time

PAUSE_S = 0.02


def epochs(rank: int) -> None:
    """A bar for each of three epochs, drawn again by carriage returns, each step twice, by the last rank alone."""
    for epoch in range(3 if rank == 1 else 0):
        for step in range(13):
            loss = 6.0 / (1 + epoch * 12 + step)
            for _time in range(2):
                sys.stderr.write(f"\rpass {epoch}: {step}/12 [00:00<00:01, 9.5it/s, loss={loss:.3f}]")
                sys.stderr.flush()
                time.sleep(PAUSE_S)


def ranks(rank: int) -> None:
    """All ranks print each step with a loss of their own."""
    for step in range(990, 1020):
        print(f"step: {step:,} loss: {2.0 + 5 * rank:.2f} tok/s: {1000 * (1 + rank):,}", flush=True)
        time.sleep(PAUSE_S)


def trainer(rank: int) -> None:
    """As the Trainer of transformers: the step in a bar, the loss in a dictionary without it, both by rank 0 alone."""
    for step in range(1, 41 if rank == 0 else 0):
        sys.stderr.write(f"\r {100 * step // 40:3d}%|{'#' * (step // 4):<10}| {step}/40 [00:01<00:02,  8.10it/s]")
        sys.stderr.flush()
        time.sleep(PAUSE_S)
        if step % 10 == 0:
            print(
                {"loss": round(4.0 / step, 4), "grad_norm": 1.25, "learning_rate": 5e-05, "epoch": step / 20},
                flush=True,
            )
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    {"epochs": epochs, "ranks": ranks, "trainer": trainer}[sys.argv[1]](int(os.environ["RANK"]))
