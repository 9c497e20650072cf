# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node of a gang in a pod, from its start to its exit code."""

from __future__ import annotations

import io
import json
import pathlib
import signal
import sys
import tarfile
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._node import (
    processes,
)
from ansible_collections.muster.training.tests.support.node_lab import eventually, read_lines
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab, recorded


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def archive(*files: tuple[str, int, bytes], **changes: t.Any) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, mode, content in files:
            item = tarfile.TarInfo(name)
            item.size, item.mode = len(content), mode
            for key, value in changes.items():
                setattr(item, key, value)
            tar.addfile(item, io.BytesIO(content))
    return raw.getvalue()


def test_the_log_of_the_container_carries_everything(lab: PodLab) -> None:
    program = 'echo "{\\"at\\": 9, \\"step\\": 3}" >> "$MUSTER_METRICS_FILE"; printf "no end"; sleep 0.5; echo " of it"'
    env = {"MUSTER_METRICS_FILE": str(lab.run_dir(0) / "metrics.jsonl")}
    end = lab.run(lab.spec(0, recorded("sh", "-c", program), env=env))
    assert end.code == 0 and end.lines == ["no end of it"]
    assert [mark["seq"] for mark in end.marks] == list(range(1, len(end.marks) + 1))
    about = {"pod": "x-node-0-0-abcde", "node": "n0", "rank": 0, "attempt": 1}
    assert all({key: mark[key] for key in about} == about for mark in end.marks)
    assert [mark["data"] for mark in end.marks if mark["stream"] == "metrics"] == [{"at": 9, "step": 3}]
    kinds = [mark["data"]["kind"] for mark in end.marks if mark["stream"] == "events"]
    assert kinds == ["pod_ready", "agent_started", "worker_started", "worker_exit", "agent_exit"]


@pytest.mark.parametrize(
    ("argv", "fatal", "code"),
    [
        (["false"], (), 1),
        (["sh", "-c", "kill -9 $$"], (), 137),
        (["/no/such/program"], (), 127),
        (recorded("sh", "-c", "exit 3"), (), 3),
        # The launcher says 1 where its rank said 3.
        (["sh", "-c", "python3 -I -S $0 $1 sh -c 'exit 3'; exit 1", *recorded()[3:]], (), 3),
        # A rank that failed and was made good by its launcher is no failure.
        (["sh", "-c", "python3 -I -S $0 $1 sh -c 'exit 3'; exit 0", *recorded()[3:]], (), 0),
        # A launcher that would go on after a fatal exit code is stopped.
        (["sh", "-c", "python3 -I -S $0 $1 sh -c 'exit 3'; sleep 60", *recorded()[3:]], (3, 65), 3),
    ],
)
def test_the_containers_exit_code_is_what_the_program_said(
    lab: PodLab, argv: list[str], fatal: tuple[int, ...], code: int
) -> None:
    end = lab.run(lab.spec(0, argv, fatal_exit_codes=fatal))
    assert end.code == code
    if code != 127:
        assert end.events("agent_exit")[0]["exit_code"] == code
    else:
        assert "muster: node 0 (n0): cannot run /no/such/program: No such file or directory" in end.text


def started(lab: PodLab, rank: int = 0) -> None:
    eventually(lambda: (lab.run_dir(rank) / "up").exists(), "the program runs")


@pytest.mark.parametrize("policy", ["torchrun", "whole"])
def test_a_wish_to_stop_reaches_the_program_which_may_save(lab: PodLab, policy: str) -> None:
    program = "trap 'echo saved; exit 0' TERM; touch up; while :; do sleep 0.05; done"
    process = lab.start(lab.spec(0, ["sh", "-c", program], policy=policy))
    started(lab)
    process.send_signal(signal.SIGTERM)
    end = lab.end(process)
    # Nothing that was stopped has succeeded, whatever it says.
    assert end.code == 143 and end.lines[-1] == "saved"
    assert end.events("agent_exit")[0]["detail"] == "asked to stop"


def test_where_its_ranks_stand_is_told_before_they_are_stopped(lab: PodLab) -> None:
    program = "trap 'exit 0' TERM; touch up; while :; do sleep 0.05; done"
    process = lab.start(lab.spec(0, recorded("sh", "-c", program)))
    started(lab)
    # What is recorded of a rank is passed on at the next turn.
    eventually(lambda: "worker_started" in (lab.run_dir(0) / "events.jsonl").read_text(), "the rank is recorded")
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    end = lab.end(process)
    (stack,) = end.events("rank_stack")
    (began,) = end.events("worker_started")
    assert (stack["rank"], stack["pid"], stack["node"]) == (0, began["pid"], "n0")
    assert stack["kernel"][0].startswith(f"process {began['pid']}: sh, ") and "py-spy" in stack["problem"]
    assert end.events("pod_ready")[0]["detail"] is None


def test_a_rank_that_stands_is_told_in_the_log_with_its_line(lab: PodLab) -> None:
    program = "import time\ndef wait():\n    open('up', 'w').close()\n    time.sleep(600)\nwait()"
    process = lab.start(lab.spec(0, recorded(sys.executable, "-c", program), grace_s=1))
    started(lab)
    eventually(lambda: "rank_stands" in (lab.run_dir(0) / "events.jsonl").read_text(), "it is seen", within_s=40)
    process.send_signal(signal.SIGTERM)
    (event,) = lab.end(process).events("rank_stands")
    assert (event["rank"], event["node"], event["frames"][0]) == (0, "n0", ["wait", "<string>", 4])


def test_who_does_not_stop_in_time_is_killed_with_all_that_it_started(lab: PodLab) -> None:
    program = "trap '' TERM; setsid sleep 300 & touch up; while :; do sleep 0.05; done"
    process = lab.start(lab.spec(0, ["sh", "-c", program], grace_s=1))
    started(lab)
    process.send_signal(signal.SIGTERM)
    end = lab.end(process, within_s=20)
    assert end.code == 143 and "killed: it did not end within 1 s" in end.text
    assert processes.find_marked("x-1/1/x-node-0-0-abcde") == []


def test_what_a_launcher_leaves_behind_ends_with_it(lab: PodLab) -> None:
    end = lab.run(lab.spec(0, ["sh", "-c", "setsid sleep 300 & echo done"]))
    assert (end.code, end.lines) == (0, ["done"])
    assert processes.find_marked("x-1/1/x-node-0-0-abcde") == []


def test_secrets_reach_the_program_and_no_output(lab: PodLab, tmp_path: pathlib.Path) -> None:
    (tmp_path / "TOKEN").write_text("s3cr3t-value")
    secrets = [
        {"name": name, "file": str(tmp_path / "TOKEN"), "deliver": how}
        for name, how in (("TOKEN", "env"), ("KEY", "file"))
    ]
    kept = tmp_path / "kept"
    end = lab.run(
        lab.spec(0, ["sh", "-c", 'echo "$TOKEN" "$(cat "$KEY_FILE")" ${#TOKEN}'], secrets=secrets, keep_logs=str(kept))
    )
    assert end.lines == ["*** *** 12"]
    assert (kept / "attempt-1" / "0-n0.log").read_text() == "*** *** 12\n"
    assert "s3cr3t" not in json.dumps(end.marks)


def test_the_code_and_the_launchers_files_are_placed(lab: PodLab, tmp_path: pathlib.Path) -> None:
    place = tmp_path / "code.tar.gz"
    place.write_bytes(archive(("code/sub/a.sh", 0o700, b"#!/bin/sh\ncat ../../note\n"), ("code/b", 0o600, b"")))
    end = lab.run(lab.spec(0, ["./a.sh"], archive=str(place), files={"note": "hello"}, workdir="{run_dir}/code/sub"))
    assert (end.code, end.lines) == (0, ["hello"])


def test_the_story_of_a_gang_is_in_its_logs(lab: PodLab) -> None:
    argv = recorded("sh", "-c", "sleep 1; exit $NODE_RANK")
    env = {"RANK": "{rank}", "WORLD_SIZE": "2"}
    running = [lab.start(lab.spec(rank, argv, nodes=2, env=env), rank) for rank in (0, 1)]
    ends = [lab.end(process) for process in running]
    story = RunHistory()
    for end in ends:
        for mark in end.marks:
            if mark["stream"] == "events":
                story.event(mark["data"])
    assert [end.code for end in ends] == [0, 1] and story.ranks_seen() == 2
    assert story.attempts[-1].world_size == 2 and story.attempts[-1].ranks == {0: "n0", 1: "n1"}
    assert story.attempts[-1].first_failure and story.attempts[-1].first_failure[1:3] == (1, "n1")
    assert read_lines(lab.run_dir(1) / "events.jsonl")[-1]["exit_code"] == 1


def test_checkpoints_beyond_the_kept_ones_are_removed(lab: PodLab, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    line = '{\\"at\\": 1, \\"checkpoint_step\\": $n, \\"path\\": \\"s$n\\"}'
    metrics = lab.run_dir(0) / "metrics.jsonl"
    program = f'for n in 1 2 3; do echo x > {folder}/s$n; sleep 0.02; echo "{line}" >> {metrics}; done'
    rules = {"format": "files", "keep": 2, "required": False, "shared": True}
    end = lab.run(lab.spec(0, ["sh", "-c", program], checkpoints=rules))
    assert end.code == 0, end.text
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == ["s2", "s3"]
    assert [event["detail"] for event in end.events("checkpoint_removed")] == ["s1"]
