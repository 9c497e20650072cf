# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training program without a framework: counts steps, saves every few, and goes on where the last save was.

``counting_program.py STEPS INTERVAL HOLD [START]``. In the first attempt it waits at step HOLD for what a test does to
it; START overrides where a later attempt begins.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time

CHECKPOINTS = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])


def metric(**values: object) -> None:
    """Append one line for the follower."""
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
        handle.write(json.dumps({"at": time.time(), **values}) + "\n")


def saved() -> int:
    """Return the step of the checkpoint, 0 without one."""
    try:
        return int((CHECKPOINTS / "step").read_text())
    except OSError:
        return 0


def save(step: int) -> None:
    """Replace the checkpoint."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    (CHECKPOINTS / "next").write_text(str(step))
    (CHECKPOINTS / "next").replace(CHECKPOINTS / "step")
    metric(checkpoint_step=step, path=str(CHECKPOINTS / "step"))


def main(steps: int, interval: int, hold: int, begin: int | None) -> int:
    """Count to ``steps``; on SIGTERM end at once, so that what was not saved is lost."""
    step = saved() if begin is None else begin
    metric(resumed_from_step=step)

    while step < steps:
        if step == hold and os.environ["MUSTER_ATTEMPT"] == "1":
            signal.pause()
        time.sleep(0.01)
        step += 1
        metric(step=step, loss=1.0 / step)
        if step % interval == 0:
            save(step)
    return 0


if __name__ == "__main__":
    given = [int(item) for item in sys.argv[1:]]
    sys.exit(main(given[0], given[1], given[2], given[3] if len(given) > 3 else None))
