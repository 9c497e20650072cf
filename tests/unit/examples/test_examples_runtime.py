# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both examples share: order of the samples, metrics lines, the stop on SIGTERM."""

from __future__ import annotations

import argparse
import errno
import json
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.examples.char_lm import runtime

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize("name", ["runtime.py", "world.py"])
def test_the_two_copies_are_the_same(name: str) -> None:
    assert (EXAMPLES / "char_lm" / name).read_bytes() == (EXAMPLES / "fsdp" / name).read_bytes()


@given(seed=st.integers(), epoch=st.integers(0, 1000), windows=st.integers(1, 500))
def test_an_epoch_holds_every_window_once(seed: int, epoch: int, windows: int) -> None:
    order = [runtime.window_of(seed, epoch * windows + index, windows) for index in range(windows)]
    assert sorted(order) == list(range(windows))


def test_seeds_and_epochs_differ_and_the_order_is_fixed() -> None:
    orders = [[runtime.window_of(seed, first + i, 97) for i in range(97)] for seed in (1, 2) for first in (0, 97)]
    assert len({tuple(order) for order in orders}) == 4
    # A checkpoint made by one release must find the same order in the next.
    assert [runtime.window_of(1, position, 1000) for position in (0, 1, 2, 1000)] == [280, 859, 438, 925]


@given(seed=st.integers(0, 9), position=st.integers(0, 10_000), windows=st.integers(1, 500))
def test_the_ranks_share_out_a_step_whatever_the_world_size(seed: int, position: int, windows: int) -> None:
    def step(world_size: int) -> list[int]:
        count = 12 // world_size
        return [w for rank in range(world_size) for w in runtime.windows_of_rank(seed, position, rank, count, windows)]

    assert step(1) == step(2) == step(3) == step(4)


def test_the_learning_rate_warms_up() -> None:
    assert [runtime.learning_rate(1.0, step) for step in (1, 10, 20, 500)] == [0.05, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(("reader", "text"), [(runtime.positive, "0"), (runtime.positive, "-3")])
def test_a_count_is_at_least_one(reader: t.Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
        reader(text)


@pytest.mark.parametrize("text", ["-0.1", "1", "nan", "inf"])
def test_a_number_is_inside_its_range(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number from 0 to below 1"):
        runtime.number(0, 1)(text)


@pytest.mark.parametrize("option", ["--steps=2x", "--batch-size=0", "--lr=-1", "--dropout=1", "--device=tpu"])
def test_a_wrong_option_is_refused_by_name(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        runtime.common_options("a test").parse_args([option])
    assert end.value.code == runtime.EXIT_USAGE
    assert option.partition("=")[0] in capsys.readouterr().err.splitlines()[-1]


def test_the_text_is_the_given_one_or_the_license(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_text = tmp_path / "text"
    given_text.write_text("something to learn")
    assert runtime.find_text(given_text) == given_text
    with pytest.raises(OSError, match="give one with --data FILE"):
        runtime.find_text(tmp_path / "absent")
    script = tmp_path / "job" / "examples" / "char_lm" / "runtime.py"
    script.parent.mkdir(parents=True)
    monkeypatch.setattr(runtime, "__file__", str(script))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="no text to learn"):
        runtime.find_text(None)
    repository = tmp_path / "job" / "LICENSE"
    repository.write_text("the repository's")
    assert runtime.find_text(None) == repository
    staged = script.parent / "data" / "LICENSE"
    staged.parent.mkdir()
    staged.write_text("the staged one")
    assert runtime.find_text(None) == staged


def test_metrics_are_whole_lines_even_after_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    runtime.Metrics(str(path)).write(step=1, loss=2.5)
    with path.open("a") as file:
        file.write('{"at": 17')
    metrics = runtime.Metrics(str(path))
    metrics.write(checkpoint_step=4, path="/somewhere")
    first, torn, last = path.read_text().splitlines()
    assert json.loads(first).items() >= {"step": 1, "loss": 2.5}.items()
    assert torn == '{"at": 17'
    assert abs(json.loads(last)["at"] - time.time()) < 60


def test_metrics_that_cannot_be_written_cost_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.Metrics(None).write(step=1)
    runtime.Metrics(str(tmp_path)).write(step=1)
    assert capsys.readouterr().err == f"no metrics from now on: {tmp_path}: Is a directory\n"
    if Path("/dev/full").exists():
        metrics = runtime.Metrics("/dev/full")
        metrics.write(step=1)
        metrics.write(step=2)
        assert capsys.readouterr().err == "no metrics from now on: No space left on device\n"


def test_only_the_speaking_rank_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_METRICS_FILE", str(tmp_path / "metrics.jsonl"))
    monkeypatch.delenv("MUSTER_RUN_ID", raising=False)
    for speaks in (False, True):
        reporter = runtime.Reporter(speaks, print_every=10, last=25)
        reporter.started(0, 2)
        for step in (9, 10, 25):
            reporter.step(step, loss=1.5, tokens=512, took_s=0.5, lr=0.003)
        reporter.saved(10, None)
        reporter.saved(20, tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "starts at step 1, world size 2",
        "step=10 loss=1.5000 tokens_per_s=1024",
        "step=25 loss=1.5000 tokens_per_s=1024",
    ]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["at"]
    assert lines == [
        {"resumed_from_step": 0, "world_size": 2},
        {"step": 9, "loss": 1.5, "tokens_per_s": 1024.0, "lr": 0.003},
        {"step": 10, "loss": 1.5, "tokens_per_s": 1024.0, "lr": 0.003},
        {"step": 25, "loss": 1.5, "tokens_per_s": 1024.0, "lr": 0.003},
        {"checkpoint_step": 20, "path": str(tmp_path)},
    ]


def script(body: str) -> subprocess.CompletedProcess[str]:
    """Run ``body`` beside the example's runtime.py in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", f"import os, signal, time, runtime\n{body}"],
        cwd=EXAMPLES / "char_lm",
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_sigterm_is_noted_and_the_loop_goes_on() -> None:
    done = script(
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "stop = runtime.StopFlag(60)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "time.sleep(0.1)\n"
        "assert not stop.requested\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "while not stop.requested: time.sleep(0.001)\n"
        "stop.reached()\n"
        "runtime.exit_after(lambda: runtime.EXIT_TERMINATED)\n"
    )
    assert (done.returncode, done.stderr) == (143, "")


def test_a_step_that_does_not_end_is_ended() -> None:
    # The main thread sits in one uninterrupted call, as in a collective, where no Python handler would run.
    done = script(
        "import threading\n"
        "stop = runtime.StopFlag(0.01)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "def send():\n"
        "    time.sleep(0.2)\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=send).start()\n"
        "os.read(os.pipe()[0], 1)\n"
    )
    assert done.returncode == 143
    assert "the step did not end within 0.01 s" in done.stderr


def test_a_checkpoint_in_progress_is_waited_for() -> None:
    done = script(
        "stop = runtime.StopFlag(0.01)\n"
        "with stop.saving:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.2)\n"
        "    print('saved', flush=True)\n"
        "time.sleep(60)\n"
    )
    assert (done.returncode, done.stdout) == (143, "saved\n")


@pytest.mark.parametrize(
    ("body", "code", "shown"),
    [
        ("lambda: print('out') or 3", 3, "out"),
        ("lambda: exit(74)", 74, ""),
        ("lambda: exit('text')", 1, ""),
        ("lambda: 1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_the_exit_code_is_the_bodys(body: str, code: int, shown: str) -> None:
    done = script(f"runtime.exit_after({body})")
    assert done.returncode == code
    assert shown in done.stdout + done.stderr


def test_keep_pace_waits_for_the_rest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda rest: clock.__setitem__(0, clock[0] + rest))
    assert runtime.keep_pace(99.5, 2.0) == pytest.approx(2.0)
    assert runtime.keep_pace(90.0, 2.0) == pytest.approx(11.5)


def test_an_error_is_described_without_its_number() -> None:
    assert runtime.describe(OSError(errno.ENOSPC, "No space left on device", "/disk/x")) == (
        "/disk/x: No space left on device"
    )
    assert runtime.describe(OSError("no text")) == "no text"
