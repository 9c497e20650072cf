# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program's own library wrote down of its losses: ``read_losses.py KIND FOLDER`` prints [[step, loss], …].

Run with the programs' interpreter.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys


def trainer_state(folder: pathlib.Path) -> list[tuple[int, float]]:
    """Return those of transformers' Trainer, in the state beside its newest checkpoint."""
    newest = max(folder.glob("checkpoint-*/trainer_state.json"), key=lambda place: int(place.parent.name[11:]))
    history = json.loads(newest.read_text())["log_history"]
    return [(line["step"], line["loss"]) for line in history if "loss" in line]


def tensorboard(folder: pathlib.Path) -> list[tuple[int, float]]:
    """Return those of Accelerate's tracker, of all attempts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: list[tuple[int, float]] = []
    for place in folder.rglob("events.out.tfevents.*"):
        told = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        for tag in told.Tags()["scalars"]:
            if tag.endswith("loss"):
                found += [(event.step, event.value) for event in told.Scalars(tag)]
    return found


def torchtune(folder: pathlib.Path) -> list[tuple[int, float]]:
    """Return those of torchtune's DiskLogger, of all attempts: ``Step 20 | loss:5.4 lr:2e-05 …``."""
    lines = [line for place in folder.glob("logs/log_*.txt") for line in place.read_text().splitlines()]
    found = (re.match(r"Step (\d+) \| loss:(\S+)", line) for line in lines)
    return [(int(line[1]), float(line[2])) for line in found if line]


def main(argv: list[str]) -> None:
    """Read and print."""
    known = (trainer_state, tensorboard, torchtune)
    print(json.dumps({kind.__name__: kind for kind in known}[argv[1]](pathlib.Path(argv[2]))))


if __name__ == "__main__":
    main(sys.argv)
