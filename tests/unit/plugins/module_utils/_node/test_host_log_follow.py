# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's end of the watch: whole lines once, offsets that continue, and an answer as soon as there is news."""

from __future__ import annotations

import os
import pathlib
import threading
import time
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import files, host_log_follow, processes

Answer = dict[str, t.Any]


def ask(run: pathlib.Path, before: Answer | None = None, **changes: t.Any) -> Answer:
    """Ask for what is new since the answer ``before``, without waiting."""
    old = before or {"offsets": {}, "digest": None}
    request = {"offsets": old["offsets"], "digest": old["digest"], "streams": ["events", "metrics", "usage", "log"]}
    return host_log_follow.wait_for_changes(run, {**request, "wait_s": 0, "batch_s": 0, **changes})


def unit(run: pathlib.Path, name: str = "agent", **state: t.Any) -> pathlib.Path:
    folder = files.private_dir(run / "units" / name)
    files.write_json(
        folder / "state.json", {"state": "running", "supervisor": processes.identity(os.getpid()), **state}
    )
    return folder


def test_a_run_without_files_has_no_news(tmp_path: pathlib.Path) -> None:
    offsets = {"events": 0, "metrics": 0, "usage": 0, "log": 0, "folder": None}
    assert ask(tmp_path) == {"text": {}, "offsets": offsets, "units": {}, "digest": "", "behind": 0, "holder": {}}


def test_whoever_takes_a_run_over_is_told_at_once(tmp_path: pathlib.Path) -> None:
    claim = {"owner": "1", "controller": "her laptop", "more": 1}
    files.write_json(tmp_path / "claim.json", claim)
    first = ask(tmp_path)
    assert first["holder"] == {"owner": "1", "controller": "her laptop"}
    files.write_json(tmp_path / "claim.json", {**claim, "owner": "2"})
    began = time.monotonic()
    assert ask(tmp_path, first, wait_s=20)["holder"]["owner"] == "2"
    assert time.monotonic() - began < 5


def test_each_line_is_told_once(tmp_path: pathlib.Path) -> None:
    unit(tmp_path)
    (tmp_path / "events.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "units" / "agent" / "log").write_text("one\ntwo\n")
    first = ask(tmp_path)
    assert first["text"] == {"events": '{"a": 1}\n', "log": "one\ntwo\n"}
    with open(tmp_path / "units" / "agent" / "log", "a") as handle:
        handle.write("three\nfo")
    second = ask(tmp_path, first)
    assert second["text"] == {"log": "three\n"}
    with open(tmp_path / "units" / "agent" / "log", "a") as handle:
        handle.write("ur\n")
    assert ask(tmp_path, second)["text"] == {"log": "four\n"}


@settings(max_examples=40)
@given(
    data=st.data(), lines=st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"") + b"\n"), max_size=8)
)
def test_however_a_file_grows_its_lines_arrive_in_order_and_whole(
    data: st.DataObject, lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run")
    whole, at, got = b"".join(lines), 0, ""
    answer = ask(run)
    while at < len(whole):
        end = data.draw(st.integers(at + 1, len(whole)))
        with open(run / "metrics.jsonl", "ab") as handle:
            handle.write(whole[at:end])
        answer, at = ask(run, answer), end
        text = answer["text"].get("metrics", "")
        assert text == "" or text.endswith("\n")
        got += text
    assert got == whole.decode(errors="replace")


def test_a_line_longer_than_one_answer_is_told_in_pieces(tmp_path: pathlib.Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * (host_log_follow._LIMIT + 5) + b"\n")
    first = ask(tmp_path)
    second = ask(tmp_path, first)
    assert len(first["text"]["metrics"]) == host_log_follow._LIMIT and second["text"]["metrics"] == "xxxxx\n"


def test_a_last_line_without_an_end_comes_after_the_unit_has_ended(tmp_path: pathlib.Path) -> None:
    folder = unit(tmp_path)
    (folder / "log").write_text("one\nCUDA error: out of memory")
    first = ask(tmp_path)
    assert first["text"] == {"log": "one\n"} and ask(tmp_path, first)["text"] == {}
    files.write_json(folder / "exit.json", {"exit_code": 1})
    last = ask(tmp_path, first)
    assert last["text"] == {"log": "CUDA error: out of memory"} and ask(tmp_path, last)["text"] == {}


@pytest.mark.parametrize("change", ["state", "dead", "exit", "lost"])
def test_a_change_of_a_unit_is_news(tmp_path: pathlib.Path, change: str) -> None:
    folder = unit(tmp_path)
    before = ask(tmp_path)
    assert ask(tmp_path, before)["digest"] == before["digest"]
    if change == "exit":
        files.write_json(folder / "exit.json", {"exit_code": 0})
    else:
        changes: dict[str, Answer] = {
            "state": {"state": "stopping"},
            "dead": {"supervisor": "1@1"},
            "lost": {"lost": 1},
        }
        unit(tmp_path, **changes[change])
    after = ask(tmp_path, before)
    assert after["digest"] != before["digest"] and after["units"]["agent"]["alive"] is (change != "dead")


class Clock:
    """Moves with each sleep of the watch and lets a test act in between."""

    def __init__(self, act: t.Callable[[float], None]) -> None:
        self.now, self.act = 0.0, act

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.act(self.now)


@pytest.mark.parametrize(
    ("stream", "answered_after_s"),
    # Events at once; lines of metrics and logs are gathered for two seconds; usage alone is no news.
    [("events.jsonl", 3.0), ("metrics.jsonl", 5.0), ("units/agent/log", 5.0), ("usage.jsonl", 20.0)],
)
def test_when_an_answer_comes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, stream: str, answered_after_s: float
) -> None:
    unit(tmp_path)

    def act(now: float) -> None:
        if now >= 3.0 and not (tmp_path / stream).exists():
            (tmp_path / stream).write_text("{}\n")

    before = ask(tmp_path)
    clock = Clock(act)
    monkeypatch.setattr(host_log_follow, "time", clock)
    answer = ask(tmp_path, before, wait_s=20.0, batch_s=2.0)
    assert clock.now == pytest.approx(answered_after_s, abs=0.2)
    assert list(answer["text"].values()) == ["{}\n"]


def test_a_writer_in_another_thread_ends_the_wait(tmp_path: pathlib.Path) -> None:
    before = ask(tmp_path)
    timer = threading.Timer(0.05, lambda: (tmp_path / "events.jsonl").write_text('{"late": 1}\n'))
    timer.start()
    assert ask(tmp_path, before, wait_s=30.0)["text"] == {"events": '{"late": 1}\n'}


def test_a_file_that_began_again_is_read_from_its_start(tmp_path: pathlib.Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"of": "the machine that was lost"}\n')
    before = ask(tmp_path)
    (tmp_path / "events.jsonl").write_text('{"new": 1}\n')
    assert ask(tmp_path, before)["text"] == {"events": '{"new": 1}\n'}


def test_a_reader_far_behind_is_shown_the_end_of_the_log(tmp_path: pathlib.Path) -> None:
    """Whole lines, a line that says how much was left out, and nothing of that for the other streams."""
    folder = unit(tmp_path)
    with open(folder / "log", "wb") as log:
        for number in range(200_000):
            log.write(b"%09d %s\n" % (number, b"x" * 89))
    answer = ask(tmp_path)
    lines = answer["text"]["log"].splitlines()
    assert lines[0] == "muster: 19.0 MB of output were left out here" or lines[0].endswith("were left out here")
    left_out = float(lines[0].split()[1]) * 1e6
    assert abs(left_out + sum(len(line) + 1 for line in lines[1:]) - 20_000_000) < 100_000
    numbers = [int(line[:9]) for line in lines[1:]]
    assert numbers == list(range(numbers[0], 200_000)) and answer["behind"] == 0


def test_what_an_ended_unit_has_left_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    folder = unit(tmp_path)
    files.write_json(folder / "exit.json", {"exit_code": 0})
    (folder / "log").write_text("x" * 99 + "\n" * 3_000_000)
    first = ask(tmp_path)
    assert first["behind"] > 0
    second = ask(tmp_path, first, wait_s=60, batch_s=60)
    assert len(second["text"]["log"]) == 1 << 20 and second["behind"] < first["behind"]
