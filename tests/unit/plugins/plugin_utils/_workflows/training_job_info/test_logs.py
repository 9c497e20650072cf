# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of runs: their ends, the lines of one rank, and following them."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    RefusedError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info import logs
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info.read import LiveSource
from ansible_collections.muster.training.tests.support.recorded_runs import connect, place

Dict = dict[str, t.Any]


def test_the_last_lines_of_every_log(home: StateHome) -> None:
    folder = place(home, "run-1", 0)
    for name in ("a", "b"):
        (files.private_dir(folder / "logs") / f"{name}.log").write_text(
            "".join(f"{name} {number}\n" for number in range(9))
        )
    found = logs.read_logs(home, None, logs.build_view(2, None, None), False, LiveSource(connect({}), ()))
    assert found["logs"] == {"a.log": ["a 7", "a 8"], "b.log": ["b 7", "b 8"]} and found["problems"] == {}
    with pytest.raises(RefusedError, match="no run exists in .*/none. Start one with the train playbook"):
        logs.read_logs(
            StateHome({"path": str(home.root)}, "none"),
            None,
            logs.build_view(2, None, None),
            False,
            LiveSource(connect({}), ()),
        )


def test_the_exception_that_the_verdict_quotes_is_among_the_last_lines(home: StateHome) -> None:
    """The launcher's report came last in the log; the error of the rank is in a file of its own."""
    folder = files.private_dir(place(home, "run-1", 0) / "logs")
    (folder / "a.log").write_text("ValueError: bad\n" + "closing\n" * 30)
    (folder / "a.err").write_text("Traceback (most recent call last):\nValueError: bad\n")
    (folder / "b.stacks").write_text("rank 1 on b: wait (x.py:2)\n")
    found = logs.read_logs(home, None, logs.build_view(2, None, None), False, LiveSource(connect({}), ()))
    assert found["logs"]["a.err"][-1] == "ValueError: bad" and found["logs"]["b.stacks"]
    said: list[str] = []
    logs.say_logs(found, said.append)
    assert said[:2] == ["a.err  Traceback (most recent call last):", "a.err  ValueError: bad"] and "a  closing" in said
    whole = logs.read_logs(home, None, logs.build_view(40, None, None), False, LiveSource(connect({}), ()))
    assert "a.err" not in whole["logs"], "the lines are there already"


def test_the_logs_of_ranks_are_fetched_from_the_nodes_that_answer(home: StateHome) -> None:
    folder = place(home, "run-1", 0, hosts=["a", "b"])

    def read(values: Dict) -> Dict:
        files = {"ranks/**/std*.log": "ranks/0/stdout.log", "units/*/log": "units/agent/log"}
        path = files.get(values["pattern"])
        return {"files": [{"path": path, "size": 3, "text": f"{path}\n"}] if path else []}

    info = {"units": {}}
    nodes = {"a": {"info": info, "read": read}, "b": {"info": info, "read": UnreachableError("b", "no")}}
    found = logs.read_logs(home, "run-1", logs.build_view(5, None, None), True, LiveSource(connect(nodes), {"a", "b"}))
    assert found["logs"] == {
        "a/ranks/0/stdout.log": ["ranks/0/stdout.log"],
        "a/units/agent/log.log": ["units/agent/log"],
    }
    assert found["problems"] == {"b": "b: no"}
    assert (folder / "logs" / "a" / "ranks" / "0" / "stdout.log").stat().st_mode & 0o777 == 0o600


@given(
    lines=st.lists(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=30), max_size=30),
    count=st.integers(0, 20),
)
def test_the_tail_of_a_file_is_its_last_lines(
    lines: list[str], count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "tail.log"
    file.write_text("".join(f"{line}\n" for line in lines))
    assert logs.read_last_lines(file, count) == (lines[-count:] if count else [])


def test_the_tail_of_a_huge_file_reads_its_end_only(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "huge.log"
    with open(file, "wb") as handle:
        handle.truncate(1 << 33)
        handle.seek(1 << 33)
        handle.write(b"\nlast\n")
    assert logs.read_last_lines(file, 1) == ["last"]


def test_a_path_that_a_node_answers_stays_in_its_folder(home: StateHome) -> None:
    folder = place(home, "run-1", 0, hosts=["a"])
    answer = {"files": [{"path": "../../../../escaped.log", "size": 1, "text": "x"}]}
    logs.read_logs(
        home,
        "run-1",
        logs.build_view(5, None, None),
        True,
        LiveSource(connect({"a": {"info": {"units": {}}, "read": answer}}), {"a"}),
    )
    assert [path for path in home.root.rglob("escaped*") if folder / "logs" not in path.parents] == []


def write_logs(folder: pathlib.Path, **texts: str) -> None:
    for name, text in texts.items():
        with open(files.private_dir(folder / "logs") / f"{name}.log", "a") as handle:
            handle.write(text)


def test_the_lines_of_one_rank_under_each_launcher(home: StateHome) -> None:
    ended: Dict = {"state": "ended", "outcome": "failed", "hosts": ["a", "b"], "world_size": {"asked": 13, "seen": 13}}
    folder = place(home, "run-1", 0, **ended, launcher="torchrun")
    write_logs(folder, a="[default0]:one\n[default1]:two\nagent\n[default1]:loss 3\n", b="[1,12]<stdout>:twelve\n")
    live = LiveSource(connect({}), ())
    assert logs.read_logs(home, None, logs.build_view(9, 1, None), False, live)["logs"] == {
        "a.log": ["[default1]:two", "[default1]:loss 3"]
    }
    assert logs.read_logs(home, None, logs.build_view(1, None, "o$"), False, live)["logs"] == {
        "a.log": ["[default1]:two"]
    }
    assert logs.read_logs(home, None, logs.build_view(9, 12, None), False, live)["logs"] == {
        "b.log": ["[1,12]<stdout>:twelve"]
    }
    alone = place(home, "cmd-1", 0, **ended, launcher="command")
    write_logs(alone, a="first\n", b="second\n")
    assert logs.read_logs(home, "cmd-1", logs.build_view(9, 1, None), False, live)["logs"] == {"b.log": ["second"]}
    with pytest.raises(InputError, match="grep: is not a regular expression"):
        logs.build_view(9, None, "(")


def test_a_rank_that_a_run_does_not_have_is_refused(home: StateHome) -> None:
    place(home, "run-1", 0, state="ended", outcome="failed", hosts=["a"], world_size={"asked": 2, "seen": 2})
    for rank in (2, 7, -1):
        with pytest.raises(InputError, match=f"rank: run run-1 has no rank {rank}. Its ranks are 0 to 1"):
            logs.read_logs(home, "run-1", logs.build_view(9, rank, None), False, LiveSource(connect({}), ()))


def test_a_selection_without_a_line_says_so(home: StateHome) -> None:
    folder = place(home, "run-1", 0, state="ended", outcome="failed", hosts=["a"])
    write_logs(folder, a="one\n")
    said: list[str] = []
    for pattern in ("one", "two"):
        logs.say_logs(
            logs.read_logs(home, "run-1", logs.build_view(9, None, pattern), False, LiveSource(connect({}), ())),
            said.append,
        )
    assert said == ["a  one", f"run run-1: no line of its logs in {folder}/logs is selected"]
    (folder / "logs/a.log").unlink()
    logs.say_logs(
        logs.read_logs(home, "run-1", logs.build_view(9, None, None), False, LiveSource(connect({}), ())), said.append
    )
    assert said[-1].startswith("run run-1: it has ended, and no log of it was read")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"state": "running"}, "no log of it is here yet: the train playbook"),
        ({"state": "ended", "pruned_at": "2026-11-29T01:02:03+00:00"}, "its logs were removed by prune on 2026-11-29"),
    ],
)
def test_why_no_log_is_here_is_said(home: StateHome, record: dict[str, t.Any], why: str) -> None:
    folder = place(home, "run-1", 0, hosts=[], **record)
    said: list[str] = []
    logs.say_logs({"run_id": "run-1", "logs": {}, "folder": str(folder)}, said.append)
    assert len(said) == 1 and said[0].startswith(f"run run-1: {why}")


def test_following_says_each_new_line_once_until_the_end(home: StateHome) -> None:
    folder = place(home, "run-1", 0, state="running", hosts=[])
    write_logs(folder, a="old 1\nold 2\n")
    said: list[str] = []
    steps: list[t.Callable[[], object]] = [
        lambda: write_logs(folder, a="new 1\nhal"),
        lambda: write_logs(folder, a="f a line\n", b="of another node\n"),
        lambda: (write_logs(folder, a="last words"), place(home, "run-1", 0, state="ended", outcome="failed")),
    ]
    live = LiveSource(connect({}), ())
    result = logs.follow_logs(
        home, "run-1", logs.build_view(1, None, None), live, said.append, lambda _: steps.pop(0)()
    )
    assert said == ["a  old 2", "a  new 1", "a  half a line", "b  of another node", "a  last words", "run run-1 failed"]
    assert t.cast(Dict, result["logs"])["a.log"] == ["last words"]


def test_a_run_in_pods_is_followed_where_its_follower_is(home: StateHome) -> None:
    place(home, "far-1", 0, state="running", backend="kubernetes")
    with pytest.raises(RefusedError, match="not being followed from here. Run train"):
        logs.follow_logs(home, None, logs.build_view(1, None, None), LiveSource(connect({}), ()), lambda _line: None)
