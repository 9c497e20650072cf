# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a run's folder: whatever is missing, torn or hostile becomes a note, never an error."""

from __future__ import annotations

import json
import pathlib
import shutil
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold
from ansible_collections.muster.training.plugins.plugin_utils._report.data import load

FIXTURES = pathlib.Path(__file__).parents[5] / "fixtures" / "report"
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just({}) | st.just([1])
KEYS = [
    *(
        "at",
        "step",
        "loss",
        "tokens_per_s",
        "samples_per_s",
        "checkpoint_step",
        "path",
        "resumed_from_step",
        "world_size",
    ),
    *("kind", "node", "rank", "attempt", "detail", "cpu_percent", "memory_gib", "gpu_percent"),
]
LINES = st.lists(
    st.dictionaries(
        st.sampled_from(KEYS),
        VALUES,
        max_size=6,
    ),
    max_size=30,
)


def test_a_complete_run_leaves_no_note() -> None:
    run = load.load_run(FIXTURES / "resumed")
    assert run.notes == ()
    assert run.unit == "tokens_per_s"
    assert [(part.resumed_from, part.world_size, len(part.steps)) for part in run.segments] == [
        (0, 2, 137),
        (120, 2, 180),
    ]
    assert [item.step for item in run.segments[0].checkpoints] == [20, 40, 60, 80, 100, 120]
    assert {item.node for item in run.usage} == {"node-1", "node-2"}
    assert len(run.logs) == 4


def test_what_prune_removed_is_said_once_and_is_not_missing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "resumed"
    folder.mkdir()
    shutil.copy(FIXTURES / "resumed" / "events.jsonl", folder)
    record = json.loads((FIXTURES / "resumed" / "run.json").read_text())
    for pruned, notes in (
        ({}, ("metrics.jsonl is missing", "usage.jsonl is missing", "logs: none were collected")),
        (
            {"pruned_at": "2026-11-29T01:02:03+00:00"},
            ("metrics, logs and reports were removed by prune on 2026-11-29",),
        ),
    ):
        (folder / "run.json").write_text(json.dumps({**record, **pruned}))
        assert load.load_run(folder).notes == notes


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        (
            None,
            "no step of the program was read: its steps, loss, throughput and useful time are not known. Set job.metrics",
        ),
        ("hf", "no line of the program has a step as preset hf prints it: its steps, loss"),
    ],
)
def test_figures_that_are_missing_have_a_reason(tmp_path: pathlib.Path, preset: str | None, said: str) -> None:
    """A run of a program of which no step was read says so, and not that a file is missing."""
    attempt, end = {"n": 1, "first_step": None, "last_step": None}, "2026-11-29T01:02:03+00:00"
    record = {"run_id": "r", "job": {"metrics": {"preset": preset}}, "attempts": [attempt], "ended_at": end}
    (tmp_path / "run.json").write_text(json.dumps(record))
    notes = load.load_run(tmp_path).notes
    assert notes[0].startswith(said) and "metrics.jsonl is missing" not in notes
    for other in ({"ended_at": None}, {"attempts": [{**attempt, "last_step": 7}]}):
        (tmp_path / "run.json").write_text(json.dumps({**record, **other}))
        assert load.load_run(tmp_path).notes[0] == "metrics.jsonl is missing"


def test_a_folder_without_run_json_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"run: no run\.json in .*Name a folder"):
        load.load_run(tmp_path)


def test_missing_files_are_notes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    run = load.load_run(tmp_path)
    assert run.notes == (
        "metrics.jsonl is missing",
        "events.jsonl is missing",
        "usage.jsonl is missing",
        "logs: none were collected",
    )


@pytest.mark.parametrize("content", [b"", b'{"run_id": "x', b"[1, 2]", b"\xff\xfe\x00", b"[" * 5000])
def test_an_unreadable_record_is_a_note(tmp_path: pathlib.Path, content: bytes) -> None:
    shutil.copytree(FIXTURES / "resumed", tmp_path / "run")
    (tmp_path / "run" / "run.json").write_bytes(content)
    run = load.load_run(tmp_path / "run")
    assert run.record == {}
    assert any(note.startswith("run.json is") for note in run.notes)
    assert run.segments


def test_a_torn_last_line_is_dropped_and_said() -> None:
    notes: list[str] = []
    lines = load.parse_lines('{"a": 1}\n{"a": 2}\n{"a": 3', "metrics.jsonl", notes)
    assert lines == [{"a": 1}, {"a": 2}]
    assert notes == ["metrics.jsonl: the last line is cut off and was left out"]


def test_unreadable_lines_in_the_middle_are_counted() -> None:
    notes: list[str] = []
    lines = load.parse_lines('{"a": 1}\nrubbish\n\n7\n{"a": 2}\n', "usage.jsonl", notes)
    assert lines == [{"a": 1}, {"a": 2}]
    assert notes == ["usage.jsonl: 2 unreadable lines left out"]


def test_an_empty_file_is_said() -> None:
    notes: list[str] = []
    assert load.parse_lines("\n", "events.jsonl", notes) == []
    assert notes == ["events.jsonl is empty"]


def test_a_step_that_falls_back_starts_a_segment_that_did_not_say_why() -> None:
    lines = [{"step": 1}, {"step": 2}, {"step": 3}, {"step": 2}, {"step": 3}]
    segments, unit = load.parse_metrics(lines, [])
    assert [([item.step for item in part.steps], part.resumed_from) for part in segments] == [
        ([1, 2, 3], None),
        ([2, 3], None),
    ]
    assert unit is None


def test_a_rank_that_alone_says_where_it_resumed_may_say_it_after_the_first_step_of_another() -> None:
    """By the clocks of two nodes: rank 0 made step 31 of attempt 2 before rank 1 said that it resumed from 30."""
    events: list[dict[str, t.Any]] = []
    for attempt, began in ((1, 1.0), (2, 20.0)):
        for rank in (0, 1):
            about = {
                "kind": "worker_started",
                "rank": rank,
                "node": f"n{rank}",
                "attempt": attempt,
                "gang": str(attempt),
            }
            events.append({"at": began, **about, "world_size": 2})
    lines = [{"at": 2.0, "resumed_from_step": 0}, *({"at": 3.0 + step, "step": step} for step in (29, 30, 31))]
    lines = [{**line, "at": min(line["at"], 19.0)} for line in lines]
    lines += [{"at": 25.2, "resumed_from_step": 30}, {"at": 25.1, "step": 31}, {"at": 25.3, "step": 32}]
    segments, _unit = load.parse_metrics(lines, [], fold(events, lines))
    assert [(item.resumed_from, [step.step for step in item.steps]) for item in segments] == [
        (0, [29, 30, 31]),
        (30, [31, 32]),
    ]


def test_a_rank_that_says_late_where_it_resumed_cuts_no_line() -> None:
    """Each rank reports it, the slowest after the first step; a restart begins a segment as ever."""
    events = [
        {"at": at, "kind": "worker_started", "rank": rank, "node": f"n{rank}", "attempt": n, "gang": f"1/{n}"}
        for n, at in ((1, 1.0), (2, 10.0))
        for rank in (0, 1)
    ]
    begin = {"resumed_from_step": 0}
    lines = [
        {"at": 2, **begin},
        {"at": 3, "step": 1},
        {"at": 4, **begin},
        {"at": 5, "step": 2},
        {"at": 11, **begin},
        {"at": 12, "step": 1},
    ]
    segments, _unit = load.parse_metrics(lines, [], fold(events, lines))
    assert [([item.step for item in part.steps], part.resumed_from) for part in segments] == [([1, 2], 0), ([1], 0)]


def test_a_loss_that_is_not_a_number_is_a_note() -> None:
    notes: list[str] = []
    lines = [json.loads('{"step": 1, "loss": NaN}'), {"step": 2, "loss": 3.5, "samples_per_s": 9}]
    segments, unit = load.parse_metrics(lines, notes)
    assert [item.loss for item in segments[0].steps] == [None, 3.5]
    assert (unit, segments[0].steps[1].throughput) == ("samples_per_s", 9.0)
    assert notes == ["metrics.jsonl: the loss is not a number (NaN or infinite) in 1 lines"]


def test_events_come_in_order_of_time_and_need_a_kind() -> None:
    lines = [
        {"at": 9, "kind": "ended", "exit_code": 3},
        {"at": 3, "kind": "drill"},
        {"at": 4},
        {"kind": "drill"},
    ]
    events = load.parse_events(lines)
    assert [(item.at, item.kind, item.exit_code) for item in events] == [(3.0, "drill", None), (9.0, "ended", 3)]


@given(LINES)
def test_any_lines_are_read(lines: list[dict[str, t.Any]]) -> None:
    segments, _unit = load.parse_metrics(lines, [])
    for part in segments:
        steps = [item.step for item in part.steps]
        assert steps == sorted(set(steps))
    assert len(load.parse_events(lines)) <= len(lines)
    assert len(load.parse_usage(lines)) <= len(lines)


@given(st.text(max_size=200))
def test_any_text_is_read_as_lines(data: str) -> None:
    assert all(isinstance(item, dict) for item in load.parse_lines(data, "x", []))
    load.find_error(data.splitlines())


def test_links_among_the_logs_are_not_followed(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "private").write_text("do not show", encoding="utf-8")
    (run / "logs" / "evil.log").symlink_to(tmp_path / "private")
    (run / "logs" / "good.log").write_text("step=1", encoding="utf-8")
    assert [log.path for log in load.load_run(run).logs] == ["logs/good.log"]


def test_only_the_end_of_a_long_log_is_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "logs" / "a.log").write_bytes(b"x" * 3_000_000 + b"\nValueError: bad\n  at the end\n")
    log = load.load_run(tmp_path).logs[0]
    assert log.size == 3_000_030
    assert log.tail[-2:] == ("ValueError: bad", "  at the end")
    assert log.error == "ValueError: bad"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["[rank1]: RuntimeError: shapes differ", "torch.x.ChildFailedError: train.py FAILED"],
            "RuntimeError: shapes differ",
        ),
        (["torch.cuda.OutOfMemoryError: CUDA out of memory"], "torch.cuda.OutOfMemoryError: CUDA out of memory"),
        (["Killed"], "Killed"),
        (["step=1 loss=2", "there was no Error: of ours"], None),
        ([], None),
    ],
)
def test_the_line_that_names_the_error(lines: list[str], expected: str | None) -> None:
    assert load.find_error(lines) == expected
