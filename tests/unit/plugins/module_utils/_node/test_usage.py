# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of how busy a node is: due every two seconds, with a GPU figure only where a tool answers."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, usage
from ansible_collections.muster.training.tests.support.node_lab import eventually, read_lines


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Clock:
    clock = Clock()
    monkeypatch.setattr(usage, "time", clock)
    monkeypatch.setenv("PATH", str(tmp_path))
    return clock


def smi(folder: pathlib.Path, body: str) -> None:
    """Place an nvidia-smi that runs ``body``."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o700)


def asked(sampler: usage.Sampler) -> None:
    """Wait for the query that runs beside the sampler."""
    if sampler.query is not None:
        sampler.query.join(30)


def test_the_first_line_comes_with_the_second_sample(tmp_path: pathlib.Path, clock: Clock) -> None:
    sampler, file = usage.Sampler(), tmp_path / "usage.jsonl"
    for seconds in (0.0, 1.0, 1.0, 1.9, 0.2):
        clock.now += seconds
        sampler.write(file, "a")
    lines = read_lines(file)
    assert [line["at"] for line in lines] == [1_700_000_102.0, 1_700_000_104.1]
    for line in lines:
        assert set(line) == {"at", "node", "cpu_percent", "memory_gib", "gpu_percent"}
        assert line["node"] == "a" and 0 <= line["cpu_percent"] <= 100 and line["memory_gib"] > 0
        assert line["gpu_percent"] is None


@pytest.mark.parametrize(
    ("body", "percent"),
    [
        ("echo '0, 50, 81920, 9'; echo '1, 71, 81920, 9'", 60.5),
        ("echo '0, [N/A], [N/A], [N/A]'", None),
        ("exit 9", None),
        ("echo '0, 12.5, 81559, 1'; echo nonsense", 12.5),
    ],
)
def test_the_mean_of_the_gpus(tmp_path: pathlib.Path, clock: Clock, body: str, percent: float | None) -> None:
    smi(tmp_path, body)
    sampler, file = usage.Sampler(), tmp_path / "usage.jsonl"
    sampler.write(file, "a")
    asked(sampler)
    clock.now += 2.0
    sampler.write(file, "a")
    assert read_lines(file)[-1]["gpu_percent"] == percent


def test_figures_that_a_gpu_does_not_have_are_null(tmp_path: pathlib.Path) -> None:
    smi(tmp_path, "echo '0, 98, 81559, 12288'; echo '1, [N/A], 81559, [N/A]'; echo 'No devices'")
    assert usage.query_gpus(str(tmp_path / "nvidia-smi")) == [
        {"index": 0.0, "busy_percent": 98.0, "memory_gib": 79.6, "memory_used_gib": 12.0},
        {"index": 1.0, "busy_percent": None, "memory_gib": 79.6, "memory_used_gib": None},
    ]
    assert usage.query_gpus(None) == [] and usage.query_gpus(str(tmp_path / "none")) == []


def test_a_tool_that_hangs_does_not_hold_the_supervisor_up(tmp_path: pathlib.Path, clock: Clock) -> None:
    gate = tmp_path / "gate"
    smi(tmp_path, f"while [ ! -e {gate} ]; do /bin/sleep 0.01; done; echo '0, 90, 9, 9'")
    sampler, file = usage.Sampler(), tmp_path / "usage.jsonl"
    for _ in range(8):
        sampler.write(file, "a")
        clock.now += 4.0
    query = sampler.query
    assert query is not None and query.is_alive() and len(read_lines(file)) == 7
    gate.touch()
    asked(sampler)
    eventually(lambda: sampler.gpu == 90.0, "the answer")


def test_a_full_disk_is_no_error(tmp_path: pathlib.Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: t.Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "append_json", full)
    sampler = usage.Sampler()
    sampler.write(tmp_path / "usage.jsonl", "a")
    clock.now += 2.0
    sampler.write(tmp_path / "usage.jsonl", "a")
