# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo and the drills, with real torch: two ranks train, something is killed, the run resumes and proves it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import ONE_THREAD, ROOT, World

pytestmark = pytest.mark.torch

INTERVAL = 20
DEMO_LIMIT_S = 420.0
SECOND_RANK_FAILS = """
import os, sys, time
open(sys.argv[1], "a").write("x")
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(120)
"""


def losses(folder: pathlib.Path) -> list[float]:
    """Return the losses that the run noted, in order of their steps; a step that was done twice counts once."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    by_step = {line["step"]: float(line["loss"]) for line in lines if "loss" in line and "step" in line}
    return [by_step[step] for step in sorted(by_step)]


def assert_resumed(folder: pathlib.Path, target: str) -> None:
    """Assert that the record proves the resume: all ranks back, at most one interval lost, the loss went on falling."""
    record = json.loads((folder / "run.json").read_text())
    drill = record["drill"]
    assert drill["resumed"] is True, drill
    assert 0 <= drill["steps_lost"] <= INTERVAL and drill["world_size"] == 2, drill
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert len(record["attempts"]) == 2 and record["steps_lost"] == drill["steps_lost"], record["attempts"]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["detail"] for event in events if event["kind"] == "drill"] == [f"killed {target}"]
    curve = losses(folder)
    third = len(curve) // 3
    assert sum(curve[-third:]) < 0.95 * sum(curve[:third]), "the loss must visibly fall"


@pytest.mark.parametrize(
    "wanted",
    [
        "ssh",
        pytest.param("local", marks=pytest.mark.long),
    ],
)
def test_the_demo(
    tmp_path: pathlib.Path, torch_python: str, wanted: str, request: pytest.FixtureRequest, world: World
) -> None:
    """One command: exit code 0, the proof printed, report, record and JUnit written, nothing left running."""
    if wanted == "ssh":
        request.getfixturevalue("sshd_works")
    elif os.geteuid() != 0 or pathlib.Path("/run/sshd").exists():
        pytest.skip("the local connection is only taken where sshd does not work")
    state = tmp_path / "demo"
    argv = [sys.executable, "-m", "tools.demo", "--state", str(state)]
    env = world.environment({"MUSTER_TORCH_PYTHON": torch_python})
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=DEMO_LIMIT_S)
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "Traceback" not in output, output[-6000:]
    folder = next((state / "local" / "runs").glob("demo-*"))
    report = folder / "report" / "report.html"
    assert "succeeded: 2 of 2 ranks, connection " in output and str(report) in output
    assert_resumed(folder, "rank 1")
    assert "<svg" in report.read_text() and '<script src="http' not in report.read_text()
    assert json.loads((report.parent / "report.json").read_text())["run_id"] == folder.name
    assert "<testsuite" in (report.parent / "junit.xml").read_text()
    ours = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if _names(path, state)]
    assert not ours, "the demo ends its sshd and all processes of its run"
    assert f"connection {wanted}," in output, "the nodes are reached over the sshd that the demo started"


def _names(cmdline: pathlib.Path, place: pathlib.Path) -> bool:
    try:
        text = cmdline.read_bytes()
    except OSError:
        return False
    # A request that was open when the run ended waits for news a little longer; it holds nothing.
    return os.fsencode(place) in text and (b"supervise" in text or b"sshd" in text or b"torch" in text)


def small_job(world: World, python: str, **values: t.Any) -> dict[str, t.Any]:
    """Return the demo's job with half its steps."""
    args = ["--steps", "120", "--batch-size", "4", "--checkpoint-every", str(INTERVAL), "--data", str(ROOT / "LICENSE")]
    # A step takes 25 ms: the job would have ended before the kill where this machine holds the controller up for a second.
    args += ["--step-time-min", "0.04"]
    return {
        "name": "e2e",
        "nodes": 2,
        "template": "pytorch_ddp",
        "python": python,
        "code": {"ref": str(ROOT / "examples" / "char_lm")},
        "script": "train.py",
        "args": args,
        "checkpoints": {"interval_steps": INTERVAL, "grace_s": 10},
        "env": ONE_THREAD,
        **values,
    }


@pytest.mark.parametrize(
    ("drill", "killed"),
    [
        # The demo kills a rank, and tests of checkpoints on two machines an agent and a host.
        pytest.param({"target": "worker", "rank": 0}, "rank 0", marks=pytest.mark.long),
        pytest.param({"target": "agent"}, "agent", marks=pytest.mark.long),
        pytest.param({"target": "host"}, "host", marks=pytest.mark.long),
        pytest.param({"target": "agent", "node": "node-1"}, "agent", marks=pytest.mark.long),
        pytest.param({"target": "host", "node": "node-1"}, "host", marks=pytest.mark.long),
    ],
    ids=["worker", "agent", "host", "first agent", "first host"],
)
def test_a_drill(world: World, torch_python: str, drill: dict[str, t.Any], killed: str) -> None:
    """What is killed comes back without a hand on it, from a checkpoint at most one interval back."""
    job = small_job(world, torch_python)
    result = world.play("drill", job=job, muster_drill={"at_step": INTERVAL + 5, **drill}, limit_s=240)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    assert "with all 2 ranks" in result.output
    assert_resumed(world.run_folder(), killed)
    assert world.processes() == {}


def test_a_fatal_exit_code_under_torchrun(world: World, torch_python: str) -> None:
    """torchrun would start the ranks again; a code that the job calls fatal ends the run in its first attempt."""
    (world.root / "code").mkdir()
    (world.root / "code" / "train.py").write_text(SECOND_RANK_FAILS)
    values = {"code": {"ref": str(world.root / "code")}, "args": [str(world.root / "began")]}
    job = small_job(world, torch_python, **values, restart={"fatal_exit_codes": [3], "max_crashes": 3})
    result = world.play(job=job, limit_s=120)
    assert result.code != 0 and len(result.errors) == 1 and "Traceback" not in result.output, result.output
    assert "node-2 exited with code 3, which restart.fatal_exit_codes names" in result.errors[0]
    assert (world.root / "began").read_text() == "xx" and world.processes() == {}
    assert len(world.record()["attempts"]) == 1
