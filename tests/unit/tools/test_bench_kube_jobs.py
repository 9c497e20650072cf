# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of jobs on Kubernetes: what is judged by which gate, and how a controller is looked at."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube_plays import Play
from ansible_collections.muster.training.tests.support.kube_lab import Team
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tools import bench
from ansible_collections.muster.training.tools import bench_kube_jobs as jobs
from ansible_collections.muster.training.tools import bench_kube_queue as queue

MIB = 2**20


def samples(*values: tuple[float, int, float]) -> list[queue.Sample]:
    return [queue.Sample(at, size * MIB, used) for at, size, used in values]


def test_the_pods_may_come_one_second_later_by_the_medians() -> None:
    line = jobs.pods_line([9.0, 1.4, 1.5], [0.5, 0.6, 0.4])
    assert line.ok and line.value == "1.50 s against 0.50 s of kubectl apply, +1.00 s (medians of 3)"
    assert not jobs.pods_line([1.51], [0.5]).ok


def test_the_first_step_may_take_a_fifth_longer() -> None:
    assert jobs.step_line([12.0, 30.0, 11.0], [10.0, 10.0, 10.0]).ok
    line = jobs.step_line([12.1], [10.0])
    assert not line.ok and "12.1 s against 10.0 s of a hand-written JobSet, 1.21 ×" in line.value


def test_the_share_of_a_core_counts_what_an_ended_process_took() -> None:
    assert queue.share(samples((100.0, 80, 3.0), (105.0, 90, 4.0), (110.0, 60, 1.0))) == (0.1, 10.0)


def test_a_wait_that_was_too_short_is_no_figure() -> None:
    with pytest.raises(SystemExit, match="ended too soon"):
        queue.share(samples((100.0, 80, 3.0), (104.0, 80, 3.1)))
    with pytest.raises(SystemExit, match="ended too soon"):
        queue.share([])


def test_memory_counts_in_both_phases_and_the_core_only_while_waiting() -> None:
    submitting = samples((0.0, 251, 0.0), (10.0, 70, 9.0))
    waiting = samples((20.0, 100, 1.0), (40.0, 100, 4.0))
    memory, busy = queue.queue_lines(50, 12.3, submitting, waiting)
    assert not memory.ok and memory.value == "251 MiB (PSS), submitted in 12 s"
    assert busy.ok and busy.value == "15.0 % of a core over 20 s"
    memory, busy = queue.queue_lines(50, 12.3, waiting, samples((20.0, 250, 1.0), (40.0, 100, 5.1)))
    assert memory.ok and not busy.ok


def test_the_hand_written_jobset_is_one_and_finds_its_first_pod() -> None:
    made = jobs.by_hand(Team("t-1", {}), "bench-7", "registry.example/train:1")
    assert problems(made) == []
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    words = pod["containers"][0]["command"]
    assert "--master-addr=bench-7-node-0-0.bench-7" in words and "/checkpoints/t-1/bench-7/train.py" in words
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "main"}


def test_a_controller_is_looked_at_from_its_task_on(tmp_path: pathlib.Path) -> None:
    works = "import time; begin = time.process_time()\nwhile time.process_time() < begin + 0.5: pass\ntime.sleep(1)"
    # Nothing before the task counts; the last word makes it a controller.
    program = f"import time; time.sleep(0.6); print('TASK [x]', flush=True)\n{works}"
    began = time.monotonic()
    play = Play([sys.executable, "-c", program, "ansible-playbook"], dict(os.environ), tmp_path / "play.log")
    found = queue.watched(play)
    assert play.wait(10)[0] == 0 and found, play.output
    assert found[0].size > MIB and max(item.used for item in found) >= 0.5
    assert found[0].at - began >= 0.6


@pytest.mark.parametrize(("ok", "code", "word"), [(True, 0, "PASS"), (False, 1, "FAIL")])
def test_a_failed_gate_is_said_and_ends_the_bench(
    ok: bool, code: int, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = jobs.Line("submit to pods created", "1 s", "≤ 1 s more", ok)
    lab: t.Any = types.SimpleNamespace(torch="/opt/torch")
    # What it changes for its own process is not for this one.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(jobs.signal, "signal", lambda *_given: None)
    monkeypatch.setattr(jobs, "unmet", str)
    monkeypatch.setattr(jobs, "borrowed", lambda: contextlib.nullcontext(lab))
    monkeypatch.setattr(jobs, "measure", lambda *_given: iter([line]))
    assert jobs.main([]) == code
    assert capsys.readouterr().out == f"submit to pods created: 1 s (gate ≤ 1 s more) {word}\n"


def test_make_bench_makes_these_figures() -> None:
    assert bench.PARTS["jobs"] == "tools.bench_kube_jobs"
