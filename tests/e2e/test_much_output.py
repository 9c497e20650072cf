# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that prints far more than the controller reads: the last step and the last words are right, disks bounded."""

from __future__ import annotations

import pathlib
import sys
import time

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, Play, World

_MIB = 1 << 20
PRINTED = 300 * _MIB
# As fast as it can until it has printed its share, with a step in every half MiB; then it fails.
PROGRAM = """
import os, pathlib, sys
noise = ("0123456789abcdef" * 6 + "\\n") * 5400
step = printed = 0
while printed < int(sys.argv[2]):
    step += 1
    line = f"iter {step} train_loss {1 / step:.6f}\\n"
    printed += sys.stdout.write(line) + sys.stdout.write(noise)
sys.stdout.flush()
pathlib.Path(sys.argv[1], "last-" + os.environ["RANK"]).write_text(str(step))
raise ValueError("the real reason")
"""


def allocated(place: pathlib.Path) -> int:
    return place.stat().st_blocks * 512


def test_the_last_step_the_reason_and_the_disk(world: World) -> None:
    job = world.job(
        command=[sys.executable, "-I", "-S", "-c", PROGRAM, str(world.root), str(PRINTED)],
        metrics={"step_pattern": "iter +(?P<step>[0-9]+) train_loss (?P<loss>[0-9.]+)"},
        restart={"max_crashes": 0},
    )
    result = world.play(job=job, limit_s=180)
    assert result.code != 0 and "ValueError: the real reason" in result.errors[0], result.output
    last = int((world.root / "last-0").read_text())
    assert world.record()["attempts"][-1]["last_step"] == last
    assert max(line["step"] for line in world.metrics()) == last
    for node in NODES:
        log = world.node_folder(node) / "units" / "agent" / "log"
        assert log.stat().st_size > PRINTED and allocated(log) < 160 * _MIB, (node, allocated(log) / _MIB)
        kept = (world.run_folder() / "logs" / f"{node}.log").read_text()
        assert "MB of output were left out here" in kept and kept.rstrip().endswith("ValueError: the real reason")
        assert len(kept) < 64 * _MIB
    logs = world.play("logs", muster_log_lines=2)
    assert "the real reason" in logs.output


# Prints 1 GB a minute on each rank for so many seconds, a step in every half MiB; then rank 1 fails.
PACED = """
import os, sys, time
noise = ("0123456789abcdef" * 6 + "\\n") * 5400
step, begun = 0, time.monotonic()
while time.monotonic() - begun < float(sys.argv[1]):
    step += 1
    print(f"iter {step} train_loss {1 / step:.6f}")
    sys.stdout.write(noise)
    time.sleep(max(0.0, begun + step * len(noise) / (1e9 / 60) - time.monotonic()))
sys.stdout.flush()
open(os.path.join(sys.argv[2], "last-" + os.environ["RANK"]), "w").write(str(step))
if os.environ["RANK"] == "1":
    raise ValueError("the real reason")
time.sleep(60)
"""


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_one_copy_of_a_gigabyte_a_minute_under_torchrun(world: World, torch_python: str, seconds: int) -> None:
    """The step and the reason are the program's last ones, and what was copied of the ranks' files is released."""
    code = world.root / "code"
    code.mkdir()
    (code / "noisy.py").write_text(PACED)
    job = {
        "name": "e2e",
        "nodes": 2,
        "python": torch_python,
        "code": {"from": "path", "ref": str(code)},
        "script": "noisy.py",
        "args": [str(seconds), str(world.root)],
        "metrics": {"step_pattern": "iter +(?P<step>[0-9]+) train_loss (?P<loss>[0-9.]+)"},
        "restart": {"max_crashes": 0},
    }
    play = world.start(job=job)
    most = measure_disk(world, play)
    result = play.wait(60)
    assert result.code != 0 and "ValueError: the real reason" in result.errors[0], result.output
    steps = [int((world.root / f"last-{rank}").read_text()) for rank in (0, 1)]
    print(f"{steps} steps of half a MiB; at most {[round(size / _MIB) for size in most.values()]} MiB a node")
    # On a busy machine the launcher may have begun the next attempt before it is stopped.
    crashed = next(attempt for attempt in world.record()["attempts"] if attempt["cause"] == "crash")
    assert crashed["last_step"] == max(steps)
    # Twice 64 MiB of the one copy, and what two ranks and their copy take between two looks, which a busy machine delays.
    assert max(most.values()) < 256 * _MIB
    for node in NODES:
        left = sum(allocated(place) for place in world.node_folder(node).glob("ranks/**/std*.log"))
        assert left < 4 * _MIB, (node, left / _MIB)


def measure_disk(world: World, play: Play) -> dict[str, float]:
    """Return the most bytes that the output of each node took of the disk while a playbook ran."""
    most: dict[str, float] = dict.fromkeys(NODES, 0.0)
    while play.process.poll() is None:
        for node in NODES:
            run = world.node_folder(node)
            places = [*run.glob("ranks/**/std*.log"), *run.glob("units/agent/log")]
            most[node] = max(most[node], sum(map(allocated, places)))
        time.sleep(0.2)
    return most
