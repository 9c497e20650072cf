# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training program that saves and loads as a common library does, and reports no checkpoint.

``layout_program.py LAYOUT``: 40 steps, a checkpoint at each tenth. The first attempt is killed while it saves the third
one. It loads as the library does: the newest by name or by its tracker, and ends with an error where that is not whole.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import sys
import time

FOLDER = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
WHOLE = b"PK\x03\x04" + b"x" * 60 + b"PK\x05\x06" + b"\0" * 18
# Layout -> where the checkpoint of a step is, its files in the order in which they are written, and the tracker.
LAYOUTS = {
    "transformers": ("checkpoint-{}", ("model.bin", "optimizer.pt", "trainer_state.json"), ""),
    "deepspeed": ("global_step{}", ("mp_rank_00_model_states.pt", "optim_states.pt"), "latest"),
    "megatron": ("iter_{:07d}", ("mp_rank_00/model_optim_rng.pt",), "latest_checkpointed_iteration.txt"),
    "lightning": ("lightning_logs/version_0/checkpoints/epoch=0-step={}.ckpt", ("",), ""),
    "dcp": ("checkpoint/step-{}", ("__0_0.distcp", ".metadata"), ""),
}
NAME, FILES, TRACKER = LAYOUTS[sys.argv[1]]


def save(step: int, killed: bool) -> None:
    """Write the files one after the other, then what comes last of all."""
    place = FOLDER / NAME.format(step)
    for number, name in enumerate(FILES):
        last = number == len(FILES) - 1
        if killed and last and not TRACKER:
            if name:
                os.kill(os.getpid(), signal.SIGKILL)
            place.write_bytes(WHOLE[:20])
            os.kill(os.getpid(), signal.SIGKILL)
        file = place / name if name else place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"{}" if name.endswith(".json") else WHOLE)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    if TRACKER:
        (FOLDER / TRACKER).write_text(str(step) if TRACKER.endswith(".txt") else place.name)
    # A card is written after all.
    (FOLDER / "README.md").write_text("---\n")


def load() -> int:
    """Return the step of what the library would take, 0 without any."""
    if TRACKER:
        said = FOLDER / TRACKER
        return int(re.findall("[0-9]+", said.read_text())[0]) if said.exists() else 0
    first = re.escape(NAME).replace(r"\{\}", "([0-9]+)")
    steps = [int(m[1]) for p in FOLDER.rglob("*") if (m := re.fullmatch(first, str(p.relative_to(FOLDER))))]
    newest = max(steps, default=0)
    last = FOLDER / NAME.format(newest) / FILES[-1] if FILES[-1] else FOLDER / NAME.format(newest)
    if newest and (not last.exists() or (not FILES[-1] and last.read_bytes() != WHOLE)):
        raise FileNotFoundError(f"{last} is not there, or not whole")
    return newest


def main() -> None:
    """Train."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for step in range(load() + 1, 41):
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
            handle.write(json.dumps({"at": time.time(), "step": step, "loss": 1 / step}) + "\n")
        time.sleep(0.01)
        if step % 10 == 0:
            save(step, killed=step == 30 and os.environ["MUSTER_ATTEMPT"] == "1")


main()
