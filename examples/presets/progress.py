# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the programs of this folder share: metrics lines, checkpoint folders that are complete or do not count, options.

A checkpoint is a folder ``step-00000040``. What its library writes comes first, the file ``complete`` last: a folder
without it was never finished and is passed over. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import time
import typing as t
from pathlib import Path

_FOLDER = re.compile(r"step-(\d{8,})")
_MARK = "complete"


def options(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all programs have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument("--step-time-min", type=float, default=0.0, help="seconds that a step takes at least")
    return parser


def note(**values: t.Any) -> None:
    """Append a line to the run's metrics."""
    place = os.environ.get("MUSTER_METRICS_FILE")
    if place:
        with open(place, "a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), **values}) + "\n")


def folder() -> Path:
    """Return the folder of the run's checkpoints, which all ranks share."""
    return Path(os.environ.get("MUSTER_CHECKPOINT_DIR", "checkpoints"))


def of_step(step: int) -> Path:
    """Return the checkpoint folder of a step."""
    return folder() / f"step-{step:08d}"


def newest() -> int:
    """Return the step of the newest complete checkpoint, 0 without one."""
    found = [match for path in folder().glob(f"step-*/{_MARK}") if (match := _FOLDER.fullmatch(path.parent.name))]
    return max((int(match[1]) for match in found), default=0)


def completed(step: int) -> None:
    """Say that all ranks have written the checkpoint of a step; of the older ones, as many as the job keeps stay."""
    place, keep = of_step(step), int(os.environ.get("MUSTER_CHECKPOINT_KEEP", "3"))
    (place / _MARK).touch()
    note(checkpoint_step=step, path=str(place))
    for older in sorted(path.parent for path in folder().glob(f"step-*/{_MARK}"))[:-keep]:
        (older / _MARK).unlink()
        shutil.rmtree(older, ignore_errors=True)


def keep_pace(started: float, minimum_s: float) -> None:
    """Wait until ``minimum_s`` seconds have passed since ``started`` (monotonic)."""
    time.sleep(max(0.0, started + minimum_s - time.monotonic()))
