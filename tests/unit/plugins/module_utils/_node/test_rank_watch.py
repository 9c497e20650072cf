# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real ranks that stand, work and move again, seen from outside; the clock of the watch is the test's."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import rank_watch
from ansible_collections.muster.training.plugins.module_utils._node.rank_watch import (
    OtherCounters,
    RankCounters,
    RankWatch,
    find_operation,
    find_place,
)
from ansible_collections.muster.training.plugins.module_utils._node.stack_reader import StackFrame
from ansible_collections.muster.training.tests.support.node_lab import eventually

TORCH = "/v/lib/python3.13/site-packages/torch"
REDUCE = StackFrame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 9)
MINE = StackFrame("main", "/x/train.py", 20)


class Watched:
    """A rank that runs a program, and a watch whose seconds pass as the test says."""

    def __init__(self, folder: pathlib.Path, program: str) -> None:
        self.folder, self.now = folder, 100.0
        (folder / "events.jsonl").touch()
        self.watch = RankWatch(folder, "node-1")
        self.program = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert self.program.stdout is not None and self.program.stdout.readline() == b"ready\n"
        self.tell({"kind": "worker_started", "rank": 3, "pid": self.program.pid, "attempt": 2})

    def tell(self, line: dict[str, t.Any]) -> None:
        with open(self.folder / "events.jsonl", "a", encoding="utf-8") as handle:
            handle.write(json.dumps({"at": time.time(), **line}) + "\n")

    def look(self, seconds: int, real_s: float = 0.02) -> list[dict[str, t.Any]]:
        """Let seconds pass, each of which lasts ``real_s``; return what was told in them."""
        before = len(self.events())
        for _second in range(seconds):
            time.sleep(real_s)
            self.now += 1.0
            self.watch.update(self.now)
        return self.events()[before:]

    def events(self) -> list[dict[str, t.Any]]:
        return [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def watched(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[[str], Watched]]:
    started: list[Watched] = []

    def start(program: str) -> Watched:
        started.append(Watched(tmp_path, program))
        return started[-1]

    yield start
    for one in started:
        one.program.kill()
        one.program.wait()


STANDS = "import threading\ndef stand(secret):\n    print('ready', flush=True)\n    lock.acquire()\nlock = threading.Lock()\nlock.acquire()\nstand('hunter2')\n"


def test_a_rank_that_stands_is_told_once_with_its_line_and_no_values(watched: t.Callable[[str], Watched]) -> None:
    one = watched(STANDS)
    assert one.look(int(rank_watch.QUIET_S)) == []
    (event,) = one.look(20)
    assert (event["kind"], event["node"], event["rank"], event["attempt"]) == ("rank_stands", "node-1", 3, 2)
    assert event["place"] == {"name": "stand", "path": "<string>", "line": 4} or event["place"] is None
    assert event["frames"][0] == ["stand", "<string>", 4] and event["operation"] is None and not event["problem"]
    assert "hunter2" not in json.dumps(event) and event["state"] == "S"
    assert 5 <= time.time() - event["since"] <= 15


class Counted:
    """What the kernel counts of a rank, as a test says: so it does not matter what else the machine does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = RankCounters("S", 0, 0, OtherCounters(0, 0, 0))
        self.adds: dict[str, int] = {}
        monkeypatch.setattr(rank_watch, "read_progress", self.read)

    def read(self, _pid: int, is_whole: bool = False) -> RankCounters:
        """Return the counters, which grow by ``adds`` each time; those of others only where they are asked for."""
        others = self.now.others or OtherCounters(0, 0, 0)
        own = {name: more for name, more in self.adds.items() if name in RankCounters._fields}
        more = {name[7:]: more for name, more in self.adds.items() if name.startswith("others_")}
        others = others._replace(**{name: getattr(others, name) + value for name, value in more.items()})
        own = {name: getattr(self.now, name) + value for name, value in own.items()}
        self.now = self.now._replace(**own, others=others)
        return self.now if is_whole else self.now._replace(others=None)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_it_moves_again_as_soon_as_it_is_scheduled(watched: t.Callable[[str], Watched], counted: Counted) -> None:
    one = watched(STANDS)
    assert [event["kind"] for event in one.look(12)] == ["rank_stands"]
    counted.adds = {"switches": 5}
    assert [event["kind"] for event in one.look(2)] == ["rank_moves"]
    assert one.look(4) == []


def test_one_that_stands_and_wakes_for_a_moment_stands(watched: t.Callable[[str], Watched], counted: Counted) -> None:
    """A data loader looks for its workers every few seconds: it makes no step by that."""
    one = watched(STANDS)
    assert [event["kind"] for event in one.look(12)] == ["rank_stands"]
    for _ in range(3):
        counted.adds = {"switches": 5}
        assert one.look(1) == []
        counted.adds = {}
        assert one.look(4) == []


def test_a_short_stop_is_not_told_and_a_long_one_is(watched: t.Callable[[str], Watched], counted: Counted) -> None:
    one = watched(STANDS)
    counted.adds = {"ticks": 5}
    assert one.look(4) == []
    counted.adds, counted.now = {}, counted.now._replace(state="T")
    assert one.look(3) == []
    counted.adds, counted.now = {"ticks": 5}, counted.now._replace(state="S")
    assert one.look(4) == []
    counted.adds, counted.now = {}, counted.now._replace(state="T")
    assert [(event["kind"], event["state"]) for event in one.look(12)] == [("rank_stands", "T")]


@pytest.mark.parametrize("adds", [{"others_ticks": 5}, {"others_bytes": 1 << 20}, {"others_switches": 20}])
def test_a_rank_for_which_a_child_or_a_thread_works_does_not_stand(
    watched: t.Callable[[str], Watched], counted: Counted, adds: dict[str, int]
) -> None:
    one = watched(STANDS)
    counted.adds = adds
    assert one.look(30) == []
    counted.adds = {}
    assert [event["kind"] for event in one.look(3)] == ["rank_stands"]


def test_a_rank_may_wait_longer_for_its_disk(watched: t.Callable[[str], Watched], counted: Counted) -> None:
    one = watched(STANDS)
    counted.now = counted.now._replace(state="D")
    assert one.look(int(rank_watch.DISK_S) - 2) == []
    assert [(event["kind"], event["state"]) for event in one.look(6)] == [("rank_stands", "D")]


def test_an_endless_loop_is_told_once_its_stack_stays_the_same(
    watched: t.Callable[[str], Watched], counted: Counted
) -> None:
    one = watched("print('ready', flush=True)\ndef turn():\n    while True:\n        pass\nturn()\n")
    counted.now, counted.adds = counted.now._replace(state="R"), {"ticks": 90, "switches": 9}
    events = one.look(45)
    assert [event["kind"] for event in events] == ["rank_stands"], events
    assert events[0]["state"] == "R" and events[0]["frames"][0][0] == "turn"


def test_what_the_kernel_counts_of_a_rank_and_its_children() -> None:
    argv = [sys.executable, "-c", "import subprocess; subprocess.run(['sh', '-c', 'while :; do :; done'])"]
    program = subprocess.Popen(argv)

    def read() -> OtherCounters:
        found = rank_watch.read_progress(program.pid, is_whole=True)
        assert found is not None and found.others is not None and found.state in "SRD"
        return found.others

    try:
        eventually(lambda: read().children, "its child")
        first = read()
        eventually(lambda: read().ticks > first.ticks + 10, "the child works")
        assert rank_watch.read_progress(program.pid)._replace(others=None).others is None  # type: ignore[union-attr]
    finally:
        for child in read().children:
            os.kill(child, signal.SIGKILL)
        program.kill()
        program.wait()
    assert rank_watch.read_progress(program.pid) is None


def test_a_rank_that_has_ended_is_watched_no_longer(watched: t.Callable[[str], Watched]) -> None:
    one = watched(STANDS)
    one.look(3)
    one.program.kill()
    one.program.wait()
    one.tell({"kind": "worker_exit", "rank": 3, "exit_code": 137})
    assert one.look(15) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("what is not expected")])
def test_what_goes_wrong_in_the_watch_does_not_end_the_job(
    watched: t.Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    one = watched(STANDS)

    def fail(*_args: t.Any) -> None:
        raise error

    monkeypatch.setattr(rank_watch.files, "append_json", fail)
    assert one.look(15) == []


@pytest.mark.parametrize(
    ("frames", "operation"),
    [
        ([REDUCE, MINE], "all_reduce"),
        ([StackFrame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1), MINE], "backward"),
        (
            [StackFrame("DistributedDataParallel.forward", f"{TORCH}/nn/parallel/distributed.py", 1), MINE],
            "forward of DistributedDataParallel",
        ),
        ([StackFrame("all_reduce", "/x/train.py", 3)], None),
        ([StackFrame("Lock.reduce", f"{TORCH}/utils/data/x.py", 3), MINE], None),
        ([], None),
    ],
)
def test_the_operation_in_which_a_rank_waits(frames: list[StackFrame], operation: str | None) -> None:
    assert find_operation(frames) == operation


def test_the_place_is_of_the_program_itself() -> None:
    installed = StackFrame("train", "/v/lib/python3.13/site-packages/trl/scripts/sft.py", 7)
    library = StackFrame("wait", "/p/lib/python3.13/threading.py", 3)
    assert find_place([library, REDUCE, MINE]) == MINE
    assert find_place([library, REDUCE, installed]) == installed
    assert find_place([library, REDUCE]) is None


def test_the_place_is_of_the_program_where_packages_are_in_a_folder_of_their_own() -> None:
    """As by ``pip install --target``, or in an image that has them elsewhere."""
    reduce = StackFrame("all_reduce", "/opt/packages/torch/distributed/distributed_c10d.py", 3)
    beside = StackFrame("fit", "/opt/packages/lightning/pytorch/trainer.py", 5)
    own = StackFrame("main", "/muster/run/code/torch/train.py", 9)
    assert find_place([reduce, beside, own]) == own
    assert find_place([reduce, beside]) == beside
    assert find_place([reduce]) is None
