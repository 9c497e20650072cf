# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that prints far more than the controller reads: the last step and the last words are right, disks bounded."""

from __future__ import annotations

import pathlib
import sys

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World

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
