# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a pod as a real process: what its container's log says, what its program gets, how both end."""

from __future__ import annotations

import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tarfile
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._node import (
    pod_discovery,
    pod_fence,
    pod_preflight,
    processes,
)
from ansible_collections.muster.training.tests.support.node_lab import eventually, read_lines, small_disk
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


def test_the_program_gets_its_place_and_the_users_word_is_the_last(lab: PodLab) -> None:
    names = (
        "MUSTER_NODE MUSTER_ATTEMPT NODE_RANK MASTER_ADDR MASTER_PORT OWN RANK GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME"
    )
    program = f"import os; print([os.environ.get(name) for name in {names.split()!r}])"
    spec = lab.spec(
        0,
        [sys.executable, "-c", program],
        env={"OWN": "{own}/{rank}/{attempt}/{first}", "NODE_RANK": "{rank}"},
        user_env={"NCCL_SOCKET_IFNAME": "=mine"},
    )
    # Whoever sets a rank above the launcher is not believed.
    end = lab.run(spec, 2, MUSTER_RESTARTS="3", RANK="7")
    assert end.lines == [str(["n2", "4", "2", "127.0.0.3", str(lab.port), "127.0.0.3/2/4/0", None, "lo", "=mine"])]


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


def test_who_does_not_stop_in_time_is_killed_with_all_that_it_started(lab: PodLab) -> None:
    program = "trap '' TERM; setsid sleep 300 & touch up; while :; do sleep 0.05; done"
    process = lab.start(lab.spec(0, ["sh", "-c", program], grace_s=1))
    started(lab)
    process.send_signal(signal.SIGTERM)
    end = lab.end(process, within_s=20)
    assert end.code == 143 and "killed: it did not end within 1 s" in end.text
    assert processes.marked("x-1/1/x-node-0-0-abcde") == []


def test_what_a_launcher_leaves_behind_ends_with_it(lab: PodLab) -> None:
    end = lab.run(lab.spec(0, ["sh", "-c", "setsid sleep 300 & echo done"]))
    assert (end.code, end.lines) == (0, ["done"])
    assert processes.marked("x-1/1/x-node-0-0-abcde") == []


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


def test_a_secret_that_is_not_mounted_is_named(lab: PodLab) -> None:
    gone = [{"name": "TOKEN", "file": "/no/such/file", "deliver": "env"}]
    end = lab.run(lab.spec(0, ["true"], secrets=gone))
    assert end.code == 78 and "the secret TOKEN is not in the pod" in end.text
    assert end.events("pod_refused")[0]["exit_code"] == 78


def test_the_code_and_the_launchers_files_are_placed(lab: PodLab, tmp_path: pathlib.Path) -> None:
    place = tmp_path / "code.tar.gz"
    place.write_bytes(archive(("code/sub/a.sh", 0o700, b"#!/bin/sh\ncat ../../note\n"), ("code/b", 0o600, b"")))
    end = lab.run(lab.spec(0, ["./a.sh"], archive=str(place), files={"note": "hello"}, workdir="{run_dir}/code/sub"))
    assert (end.code, end.lines) == (0, ["hello"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no archive", "is damaged"),
        (archive(("../evil", 0o600, b"")), "'../evil', which is no plain file below it"),
        (archive(("/evil", 0o600, b"")), "'/evil', which is no plain file below it"),
        (archive(("link", 0o600, b""), type=tarfile.SYMTYPE, linkname="/etc"), "'link', which is no plain file"),
        (archive(("a", 0o600, b"x" * 5000))[:-40], "is damaged"),
    ],
    # An archive holds the time at which it was made: it is no name for a test.
    ids=["text", "above", "from the root", "link", "cut off"],
)
def test_an_archive_that_is_none_of_ours_is_refused(
    lab: PodLab, tmp_path: pathlib.Path, content: bytes, problem: str
) -> None:
    (tmp_path / "code.tar.gz").write_bytes(content)
    end = lab.run(lab.spec(0, ["true"], archive=str(tmp_path / "code.tar.gz")))
    assert end.code == 78 and problem in end.text and "Traceback" not in end.text


def test_checkpoints_that_could_not_be_written_are_found_before_anything_runs(
    lab: PodLab, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_text("")
    end = lab.run(lab.spec(0, ["echo", "ran"], checkpoint_dir=str(tmp_path / "file" / "below")))
    assert end.code == 78 and "cannot be written: Not a directory" in end.text and "ran" not in end.lines
    end = lab.run(lab.spec(0, ["echo", "ran"], free_bytes=1 << 60))
    assert end.code == 74 and "MiB are needed" in end.text and "ran" not in end.lines


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk needs root")
def test_a_full_disk_is_told_from_a_forbidden_one(tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with (disk / "fill").open("wb") as handle, pytest.raises(OSError, match="No space"):
            while True:
                handle.write(b"x" * 65536)
                handle.flush()
        with pytest.raises(pod_preflight.Refusal, match="cannot be written: No space left") as caught:
            pod_preflight.check_disk(disk / "run", 0)
    assert caught.value.code == pod_preflight.EXIT_NO_ROOM


def test_a_file_system_that_hangs_is_named_in_time(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_preflight, "_disk_problem", lambda *_: time.sleep(5))
    with pytest.raises(pod_preflight.Refusal, match="did not answer for 0 s"):
        pod_preflight.check_disk(tmp_path, 0, within_s=0.05)


def test_the_others_find_the_first_node_whoever_comes_first(lab: PodLab) -> None:
    show = [sys.executable, "-c", "import os; print(os.environ['MASTER_ADDR'])"]
    second = lab.start(lab.spec(1, show, nodes=2), 1)
    time.sleep(0.5)
    assert second.poll() is None
    first = lab.start(lab.spec(0, ["sh", "-c", "sleep 3; echo $MASTER_ADDR"], nodes=2))
    # localhost stands for the first pod's name; the second one hears what it leads to.
    assert lab.end(second).lines == ["127.0.0.1"] and lab.end(first).lines == ["127.0.0.1"]


def test_a_pod_of_another_attempt_is_not_taken_for_the_first(lab: PodLab) -> None:
    lab.start(lab.spec(0, ["sleep", "60"], nodes=2))
    end = lab.run(lab.spec(1, ["true"], nodes=2, wait_s=1), 1, MUSTER_RESTARTS="1")
    assert end.code == 69
    assert "node 1 (n1): the gang could not form" in end.text and f"belongs to {lab.run_id} attempt 1" in end.text


@pytest.mark.parametrize(
    ("name", "problem"),
    [("no-such-name.invalid", "is not known"), ("localhost", "does not answer")],
)
def test_a_first_node_that_is_not_there_is_named(lab: PodLab, name: str, problem: str) -> None:
    end = lab.run(lab.spec(1, ["true"], nodes=2, coordinator=name, wait_s=1), 1)
    assert end.code == 69 and problem in end.text and "Traceback" not in end.text


def test_waiting_for_the_first_node_can_be_stopped(lab: PodLab) -> None:
    process = lab.start(lab.spec(1, ["true"], nodes=2, wait_s=60), 1)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert lab.end(process, within_s=10).code == 143


def test_strangers_at_the_meeting_are_no_guests() -> None:
    meeting = pod_discovery.Meeting("127.0.0.1", 0, {"run_id": "x", "attempt": 1})
    try:
        run = {"run_id": "x", "attempt": 1}
        for bad in (b"", b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"run_id": "x", "attempt": 1}\n', b"\xff\n"):
            with socket.create_connection(("127.0.0.1", meeting.port)) as link:
                link.sendall(bad)
        found = pod_discovery.find(
            "localhost", meeting.port, {"rank": 3, "node": "n3"}, run, time.monotonic() + 5, lambda _: True, print
        )
        assert found == "127.0.0.1" and meeting.seen == {3: "n3"}
    finally:
        meeting.close()


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({"JOB_COMPLETION_INDEX": "4"}, 4),
        ({"MUSTER_NODE_RANK": "2", "JOB_COMPLETION_INDEX": "4"}, 2),
        ({"MUSTER_NODE_RANK": "", "VC_TASK_INDEX": "1"}, 1),
        ({"MUSTER_POD": "x-worker-12"}, 12),
    ],
)
def test_a_pods_number_comes_from_where_its_engine_says_it(env: dict[str, str], rank: int) -> None:
    spec = {"attempt": 2, "rank_from_name": "MUSTER_POD" in env}
    place = pod_preflight.place(spec, {"MUSTER_POD": "x", **env, "MUSTER_RESTARTS": "1"})
    assert (place.rank, place.attempt) == (rank, 3)


def test_a_pod_without_a_number_is_refused(lab: PodLab) -> None:
    end = lab.run(lab.spec(0, ["true"]), JOB_COMPLETION_INDEX="")
    assert end.code == 78 and "the pod has no index" in end.text
    launcher = pod_preflight.place({"attempt": 1, "role": "launcher"}, {})
    assert launcher.rank == -1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"mode": "fly"}'])
def test_a_specification_that_is_none_is_refused_in_one_line(lab: PodLab, tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    argv = [sys.executable, "-I", "-S", str(lab.program), str(tmp_path / "s.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 78 and done.stdout.count("\n") == 1 and not done.stderr


def test_the_code_can_be_placed_without_running_anything(lab: PodLab, tmp_path: pathlib.Path) -> None:
    (tmp_path / "code.tar.gz").write_bytes(archive(("code/a.py", 0o600, b"x = 1\n")))
    spec = lab.spec(0, ["false"], mode="prepare", archive=str(tmp_path / "code.tar.gz"), files={"f": "1"})
    end = lab.run(spec)
    assert (end.code, end.text) == (0, "")
    assert (lab.run_dir(0) / "code" / "a.py").read_text() == "x = 1\n" and (lab.run_dir(0) / "f").exists()


def test_a_probe_proves_that_all_pods_reach_each_other(lab: PodLab) -> None:
    running = [lab.start(lab.spec(rank, [], mode="probe", nodes=3), rank) for rank in (2, 1, 0)]
    ends = [lab.end(process) for process in running]
    assert [end.code for end in ends] == [0, 0, 0]
    marks = [mark["data"] for mark in ends[2].marks]
    assert [item["tried"] for item in marks[:-1]] == [2, 2, 2]
    assert marks[-1] == {"verdict": True, "ok": True, "nodes": 3, "problems": []}


def test_a_probe_names_who_is_missing(lab: PodLab) -> None:
    running = [lab.start(lab.spec(rank, [], mode="probe", nodes=3, wait_s=2), rank) for rank in (1, 0)]
    ends = [lab.end(process) for process in running]
    assert ends[1].code == 69
    assert "muster: node rank 2 did not come within 2 s" in ends[1].text
    alone = lab.run(lab.spec(1, [], mode="probe", nodes=2, wait_s=1, coordinator="no-such-name.invalid"), 1)
    assert alone.code == 69 and "no-such-name.invalid" in alone.text and "Traceback" not in alone.text


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
    assert story.attempts[-1].first_failure and story.attempts[-1].first_failure[1:] == (1, "n1")
    assert read_lines(lab.run_dir(1) / "events.jsonl")[-1]["exit_code"] == 1


def test_an_attempt_that_was_given_up_ends_when_the_next_has_begun(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """It does not save: the checkpoints are the next attempt's. A later submission counts anew and is newer."""
    kept = tmp_path / "shared" / ".muster" / "x-1"
    saves = "trap 'echo saved; exit 0' TERM; echo runs; while :; do sleep 0.1; done"
    old = lab.start(lab.spec(0, ["sh", "-c", saves], keep_logs=str(kept / "logs"), attempt=7, begun=100))
    eventually(lambda: (kept / "newest").is_file() and "runs" in logs(kept), "the first attempt")
    after = lab.run(lab.spec(0, ["true"], keep_logs=str(kept / "logs"), attempt=1, begun=200))
    assert after.code == 0, after.text
    end = lab.end(old)
    assert end.code == 143 and "saved" not in end.lines and "attempt 1 of the run has begun" in end.text
    late = lab.run(lab.spec(0, ["echo", "runs"], keep_logs=str(kept / "logs"), attempt=8, begun=100))
    assert late.code == 69 and late.lines == []


def test_a_pod_that_a_new_machine_starts_again_does_not_join(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """Its gang would wait for the ranks that are gone; another pod of the same attempt may start."""
    kept = str(tmp_path / "shared" / "logs")
    codes = [lab.run(lab.spec(0, ["echo", "runs"], keep_logs=kept), MUSTER_POD=pod).code for pod in ("a", "a", "b")]
    assert codes == [0, 69, 0]
    # An operator may make a pod of the same name again, which is another one: its uid tells.
    uids = [("c", "1"), ("c", "2"), ("c", "2")]
    ends = [lab.run(lab.spec(0, ["true"], keep_logs=kept), MUSTER_POD=pod, MUSTER_POD_UID=uid) for pod, uid in uids]
    assert [end.code for end in ends] == [0, 0, 69]


def test_what_an_attempt_kept_is_printed_by_another_pod(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """Its own words and what it recorded, so that the story is whole without its container's log."""
    kept = str(tmp_path / "shared" / "logs")
    first = lab.run(lab.spec(0, recorded("sh", "-c", "echo hello; exit 3"), keep_logs=kept, attempt=2))
    end = lab.run(lab.spec(0, [], mode="kept", keep_logs=kept))
    assert (first.code, end.code, end.text.strip()) == (3, 0, "")
    assert [mark["data"] for mark in end.marks if mark["stream"] == "kept" and mark["attempt"] == 2] == ["hello"]
    assert [mark for mark in end.marks if mark["stream"] != "kept"] == first.marks
    assert lab.run(lab.spec(0, [], mode="kept", keep_logs=str(tmp_path / "none"))).code == 0


def test_a_torn_fence_is_none_and_one_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    for text in ("", "7", "7 x", "\xff\xff", "1 2 3"):
        (tmp_path / "newest").write_text(text, encoding="latin-1")
        assert pod_fence.read(tmp_path / "newest") == (0, 0)
    (tmp_path / "file").write_text("")
    said: list[str] = []
    pod_fence.Fence(tmp_path / "file" / "newest", (1, 1), said.append)
    assert len(said) == 1 and "cannot be written" in said[0]


def logs(kept: pathlib.Path) -> str:
    """Return what the pods of a run kept of their logs."""
    return "".join(place.read_text() for place in sorted(kept.glob("logs/*/*.log")))
