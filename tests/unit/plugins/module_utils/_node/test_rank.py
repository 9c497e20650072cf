# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank as a real process: what it records, what its program gets, and how both end."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_rank_output, processes
from ansible_collections.muster.training.plugins.module_utils._node import rank as rank_module
from ansible_collections.muster.training.tests.support.layout_parts import CASES, save_step
from ansible_collections.muster.training.tests.support.node_lab import eventually, read_lines

PROGRAM = str(pathlib.Path(rank_module.__file__))
TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}


@dataclasses.dataclass
class Ranks:
    """Starts ranks that record in one file."""

    folder: pathlib.Path

    @property
    def events(self) -> list[dict[str, t.Any]]:
        return read_lines(self.folder / "events.jsonl")

    def start(self, argv: list[str], **env: str) -> subprocess.Popen[str]:
        values = {
            "PATH": os.environ["PATH"],
            "MUSTER_NODE": "a",
            "MUSTER_ATTEMPT_COUNTER": str(self.folder / "n"),
            **env,
        }
        command = [sys.executable, "-I", "-S", PROGRAM, str(self.folder / "events.jsonl"), *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=values, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, argv: list[str], **env: str) -> tuple[int, str, str]:
        with self.start(argv, **env) as process:
            out, err = process.communicate(timeout=30)
        return process.returncode, out, err


@pytest.fixture
def ranks(tmp_path: pathlib.Path) -> Ranks:
    return Ranks(tmp_path)


def test_a_rank_has_started_before_its_program(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Printed lines have the time at which they were printed: the first ones are of this attempt, too."""
    started: list[float] = []

    def start(command: list[str]) -> int:
        started.append(time.time())
        time.sleep(0.01)
        return os.spawnvp(os.P_NOWAIT, command[0], command)

    monkeypatch.setattr(rank_module, "start_program", start)
    rank_module.main(["rank", str(tmp_path / "events.jsonl"), "true"])
    assert read_lines(tmp_path / "events.jsonl")[0]["at"] <= started[0]


def test_start_and_end_are_recorded_with_rank_and_node(ranks: Ranks) -> None:
    meeting = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "40001"}
    assert ranks.run(["sh", "-c", "echo $MUSTER_ATTEMPT; exit 3"], **TORCHRUN, **meeting) == (3, "1\n", "")
    started, ended = ranks.events
    common = {"node": "a", "rank": 3, "local_rank": 1, "attempt": 1, "gang": "1/10.0.0.1:40001"}
    assert started.pop("pid") > 0 and started.pop("at") <= ended.pop("at")
    assert started == {"kind": "worker_started", "world_size": 4, **common}
    assert ended == {"kind": "worker_exit", "exit_code": 3, "signal": 0, **common}


@pytest.mark.parametrize(
    ("env", "rank", "world"),
    [
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, 2, 4),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, 1, 2),
        ({"NODE_RANK": "1", "NNODES": "3"}, 1, 3),
        ({"RANK": "x"}, None, None),
    ],
)
def test_every_launchers_variables_are_understood(
    ranks: Ranks, env: dict[str, str], rank: int | None, world: int | None
) -> None:
    assert ranks.run(["true"], **env)[0] == 0
    assert [(line["rank"], line.get("world_size", world)) for line in ranks.events] == [(rank, world)] * 2


def test_a_rank_of_a_gang_of_another_size_does_not_begin(ranks: Ranks) -> None:
    code, out, err = ranks.run(["echo", "trained"], **TORCHRUN, MUSTER_WORLD_SIZE="8")
    assert code == 1 and "trained" not in out
    assert err.startswith("muster.GangError: the gang that torchrun formed has 4 of 8 ranks. It leaves out a node")
    assert [(item["kind"], item["world_size"] if "started" in item["kind"] else item["exit_code"]) for item in ranks.events] == [
        ("worker_started", 4), ("worker_exit", 1)]  # fmt: skip
    code, out, _err = ranks.run(["env"], **TORCHRUN, MUSTER_WORLD_SIZE="4")
    assert code == 0 and "MUSTER_WORLD_SIZE" not in out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_rank_that_is_started_again_waits_for_the_file_system_of_its_checkpoints(ranks: Ranks) -> None:
    """Its place is an empty folder of another disk meanwhile."""
    place = ranks.folder / "shared"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "of-a-test", str(place)]
    subprocess.run(mount, check=True)
    try:
        asked = {**TORCHRUN, "MUSTER_CHECKPOINT_DIR": str(place / "checkpoints")}
        assert ranks.run(["echo", "trained"], **asked)[1] == "trained\n"
        subprocess.run(["umount", str(place)], check=True)
        with ranks.start(["echo", "trained"], **asked) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.5)
            subprocess.run(mount, check=True)
            assert process.communicate(timeout=30)[0] == "trained\n"
    finally:
        subprocess.run(["umount", str(place)], check=False)


def test_a_program_that_a_signal_ended_has_a_shells_code(ranks: Ranks) -> None:
    assert ranks.run(["sh", "-c", "kill -9 $$"], **TORCHRUN)[0] == 137
    assert (ranks.events[1]["exit_code"], ranks.events[1]["signal"]) == (137, 9)


def test_a_program_that_is_not_there_is_named(ranks: Ranks) -> None:
    code, _, err = ranks.run(["no-such-program", "secret-argument"], **TORCHRUN)
    assert (code, err) == (127, "muster: cannot run no-such-program: No such file or directory\n")
    assert ranks.events[1]["exit_code"] == 127


def test_attempts_are_counted_for_each_local_rank(ranks: Ranks) -> None:
    for _ in range(2):
        for local in ("0", "1"):
            ranks.run(["true"], LOCAL_RANK=local, MUSTER_ATTEMPT_BASE="4")
    ranks.run(["true"], LOCAL_RANK="0", MUSTER_ATTEMPT_BASE="4")
    started = [(line["local_rank"], line["attempt"]) for line in ranks.events if line["kind"] == "worker_started"]
    assert started == [(0, 4), (1, 4), (0, 5), (1, 5), (0, 6)]


def test_without_a_counter_the_first_number_stands(ranks: Ranks) -> None:
    missing = str(ranks.folder / "no" / "folder" / "n")
    assert (
        ranks.run(["sh", "-c", "echo $MUSTER_ATTEMPT"], MUSTER_ATTEMPT_BASE="7", MUSTER_ATTEMPT_COUNTER=missing)[1]
        == "7\n"
    )
    assert (
        ranks.run(["sh", "-c", "echo $MUSTER_ATTEMPT"], MUSTER_ATTEMPT_BASE="7", MUSTER_ATTEMPT_COUNTER="")[1] == "7\n"
    )


def test_secrets_come_from_a_file_that_the_program_does_not_see(ranks: Ranks) -> None:
    file = ranks.folder / "env.json"
    file.write_text('{"TOKEN": "geheim-42"}')
    code, out, _ = ranks.run(["sh", "-c", "echo $TOKEN ${MUSTER_SECRETS_FILE-unset}"], MUSTER_SECRETS_FILE=str(file))
    assert (code, out) == (0, "geheim-42 unset\n")
    assert "geheim" not in (ranks.folder / "events.jsonl").read_text()
    assert ranks.run(["true"], MUSTER_SECRETS_FILE=str(ranks.folder / "gone.json"))[0] == 0


def test_a_rank_runs_also_where_nothing_can_be_recorded(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-I", "-S", PROGRAM, str(tmp_path / "no" / "events"), "sh", "-c", "echo ran; exit 5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (5, "ran\n")
    assert "muster: cannot record the rank in" in done.stderr


def test_a_signal_to_the_group_lets_the_program_save_and_the_end_is_recorded(ranks: Ranks) -> None:
    process = ranks.start(
        ["sh", "-c", "trap 'echo saved; exit 9' TERM; echo ready; while :; do sleep 0.01; done"], **TORCHRUN
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    eventually(lambda: ranks.events, "the start")
    os.killpg(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (9, "saved\n")
    assert (ranks.events[-1]["exit_code"], ranks.events[-1]["stopped"]) == (9, True)


def test_the_recorded_process_is_the_program_itself(ranks: Ranks) -> None:
    process = ranks.start(["sleep", "60"], **TORCHRUN)
    pid = eventually(lambda: ranks.events, "the start")[0]["pid"]
    assert pid != process.pid
    processes.kill_all([pid])
    assert process.wait(timeout=30) == 137
    process.communicate()


def test_two_starts_of_one_run_are_two_gangs(ranks: Ranks) -> None:
    for base in ("1", "2"):
        counter = str(ranks.folder / f"attempts-{base}")
        env = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20000", "MUSTER_ATTEMPT_COUNTER": counter}
        ranks.run(["true"], MUSTER_ATTEMPT_BASE=base, **env)
    assert len({line["gang"] for line in ranks.events}) == 2


@pytest.mark.parametrize(("codes", "ended"), [("3,65", True), ("65", False), ("", False)])
def test_a_fatal_exit_code_ends_the_agent_before_it_starts_the_rank_again(
    ranks: Ranks, codes: str, ended: bool
) -> None:
    command = [sys.executable, "-I", "-S", PROGRAM, str(ranks.folder / "events.jsonl"), "sh", "-c", "exit 3"]
    agent = f"import subprocess, time; subprocess.run({command!r}); time.sleep(0.5)"
    values = {**os.environ, **TORCHRUN, "MUSTER_FATAL_EXIT_CODES": codes}
    done = subprocess.run([sys.executable, "-c", agent], env=values, timeout=60, check=False)
    assert done.returncode == (-signal.SIGTERM if ended else 0)
    assert [event["kind"] for event in ranks.events] == ["worker_started", "worker_exit"], "recorded before"


@pytest.mark.parametrize(("code", "said"), [(0, "muster-done-r 3\n" * 2), (3, "")])
def test_a_rank_of_mpirun_says_that_it_has_ended_well(tmp_path: pathlib.Path, code: int, said: str) -> None:
    """Even when its program has closed its own output."""
    argv = ["/bin/sh", "-c", f"exec >&-; exit {code}"]
    assert Ranks(tmp_path).run(argv, MUSTER_DONE="muster-done-r", **TORCHRUN)[:2] == (code, said)


def test_a_rank_prints_into_files_of_its_attempt_which_nothing_empties(ranks: Ranks) -> None:
    argv = ["sh", "-c", "echo out $MUSTER_OUTPUT; echo err >&2"]
    values = {**TORCHRUN, "MUSTER_OUTPUT": str(ranks.folder / "ranks")}
    # Where no start can be counted, the number of an attempt comes again.
    for counter in ("n", "n", "none/n"):
        assert ranks.run(argv, **values, MUSTER_ATTEMPT_COUNTER=str(ranks.folder / counter)) == (0, "", "")
    printed = {
        str(place.relative_to(ranks.folder)): place.read_text() for place in ranks.folder.glob(host_rank_output.FILES)
    }
    # One file, in the order in which it was printed.
    assert printed == {f"ranks/attempt_1.{n}/3/stdout.log": "out\nerr\n" * times for n, times in ((1, 2), (2, 1))}


def test_a_rank_in_a_pod_prints_its_two_streams_in_order(ranks: Ranks) -> None:
    argv = ["sh", "-c", "echo one; echo two >&2; echo three $MUSTER_ONE_STREAM"]
    assert ranks.run(argv, **TORCHRUN, MUSTER_ONE_STREAM="1") == (0, "one\ntwo\nthree\n", "")


def test_a_program_gets_its_checkpoint_folder_as_an_argument(ranks: Ranks) -> None:
    argv = ["echo", "--out={checkpoint_dir}/x", "{other}"]
    assert ranks.run(argv, **TORCHRUN, MUSTER_CHECKPOINT_DIR="/c/r-1")[:2] == (0, "--out=/c/r-1/x {other}\n")
    assert ranks.run(argv, **TORCHRUN)[:2] == (0, "--out={checkpoint_dir}/x {other}\n")


def test_a_program_that_has_to_be_told_to_resume_is_told_the_newest_whole_checkpoint(
    ranks: Ranks, tmp_path: pathlib.Path
) -> None:
    """In its first start there is none; a half-saved one is none either."""
    folder = tmp_path / "ckpt"
    given = {"args": ["--resume", "{checkpoint}", "--in={checkpoint_dir}"], "format": "auto"}
    values = {**TORCHRUN, "MUSTER_CHECKPOINT_DIR": str(folder), "MUSTER_RESUME_ARGS": json.dumps(given)}
    argv = ["sh", "-c", 'echo "$@" $MUSTER_RESUME_ARGS', "sh", "--lr", "1"]
    assert ranks.run(argv, **values)[:2] == (0, "--lr 1\n")
    for step, name in ((10, "trainer_state.json"), (20, "optimizer.pt")):
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / "model.bin").write_text("w")
        (folder / f"checkpoint-{step}" / name).write_text("{}")
    assert ranks.run(argv, **values)[:2] == (0, f"--lr 1 --resume {folder}/checkpoint-10 --in={folder}\n")
    assert json.loads((folder / ".muster-resumed.json").read_text()) == ["checkpoint-10"], "it may read there"


def test_a_program_is_told_what_the_files_of_a_checkpoint_have_in_common(ranks: Ranks, tmp_path: pathlib.Path) -> None:
    save_step(tmp_path, CASES["tensorflow"], 10, CASES["tensorflow"].first, tracks=True)
    given = {"args": ["{checkpoint}"], "format": "auto"}
    values = {**TORCHRUN, "MUSTER_CHECKPOINT_DIR": str(tmp_path), "MUSTER_RESUME_ARGS": json.dumps(given)}
    assert ranks.run(["echo"], **values)[:2] == (0, f"{tmp_path}/ckpt-10\n")


def test_a_rank_without_room_for_its_files_prints_into_the_log(ranks: Ranks) -> None:
    assert ranks.run(["echo", "here"], **TORCHRUN, MUSTER_OUTPUT="/dev/null/none")[:2] == (0, "here\n")


def test_a_program_does_not_inherit_what_python_ignores(ranks: Ranks) -> None:
    ignored = int(ranks.run(["sed", "-n", "s/^SigIgn:.//p", "/proc/self/status"], **TORCHRUN)[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))
