# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's jobs run: small programs for the nodes' own Python, standard library only, as text for ``python3 -c``."""

from __future__ import annotations

# argv: folder. Notes that it began, holds a lock so that a second rank with its number is seen, and ends when the
# file "finish" appears. It leaves a file in the folder when a variable that a secret should have set is not there.
RANK = """
import fcntl, os, pathlib, sys, time
here = pathlib.Path(sys.argv[1]); rank = os.environ["RANK"]
lock = open(here / f"rank-{rank}.lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (here / "duplicate").write_text(rank)
with open(here / "began", "a") as handle:
    handle.write(f"{rank} {os.environ['MUSTER_ATTEMPT']} {os.getpid()} {len(os.environ.get('LAB_SECRET', ''))}\\n")
while not (here / "finish").exists():
    print("working", flush=True)
    time.sleep(0.05)
"""

# argv: last step, seconds a step, interval of checkpoints. Rank 0 counts steps, writes metrics lines and keeps its
# checkpoint (one number, replaced at once) where the job says; the other ranks wait for rank 0's last step.
TRAINER = """
import json, os, pathlib, sys, time
last, pause, interval = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); folder.mkdir(parents=True, exist_ok=True)
place = folder / "step"
def reached():
    try:
        return int(place.read_text())
    except (OSError, ValueError):
        return 0
def say(**values):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
        handle.write(json.dumps({"at": time.time(), **values}) + chr(10))
if rank:
    while reached() < last:
        time.sleep(0.05)
    raise SystemExit
step = reached()
if step:
    say(resumed_from_step=step)
while step < last:
    time.sleep(pause); step += 1
    say(step=step, loss=1.0 / step)
    if step % interval == 0 or step == last:
        (folder / "new").write_text(str(step)); (folder / "new").rename(place)
        say(checkpoint_step=step, path=str(place))
"""

# argv: the rank that allocates, MiB that it allocates. The others wait for longer than a test lasts.
HOG = """
import os, sys, time
if os.environ["RANK"] == sys.argv[1]:
    held = []
    for _ in range(int(sys.argv[2])):
        held.append(bytearray(os.urandom(1 << 20)))
        time.sleep(0.001)
    print("allocated everything", flush=True)
time.sleep(600)
"""
