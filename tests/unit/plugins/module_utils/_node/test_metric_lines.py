# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics out of printed lines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import metric_lines

PATTERNS = metric_lines.compile_patterns(
    {
        "step": r"step (?P<step>[0-9,]+)(?: loss (?P<loss>\S+))?",
        "checkpoint_step": r"saved (?P<step>[0-9]+)",
        "resumed_from_step": r"^\[rank0\]:resumed at (?P<step>\S+)",
    }
)


def test_each_kind_of_line_becomes_its_metric() -> None:
    text = "[rank0]:step 1,200 loss 0.5\nnoise\n[rank0]:saved 1200\r\n[rank0]:resumed at 1200\nstep 1201 loss none\n"
    assert metric_lines.parse_lines(PATTERNS, text, 9.0) == [
        {"at": 9.0, "loss": 0.5, "step": 1200, "rank": 0},
        {"at": 9.0, "checkpoint_step": 1200, "rank": 0},
        {"at": 9.0, "resumed_from_step": 1200, "rank": 0},
        {"at": 9.0, "step": 1201},
    ]


@pytest.mark.parametrize("word", ["nan", "NaN", "-inf", "Infinity"])
def test_a_loss_that_is_not_a_number_is_kept(word: str) -> None:
    (line,) = metric_lines.parse_lines(PATTERNS, f"step 7 loss {word}\n", 9.0)
    assert math.isnan(line["loss"]) and line["step"] == 7


def test_a_step_that_is_no_number_is_none() -> None:
    assert metric_lines.parse_lines(PATTERNS, "[rank0]:resumed at start\n", 9.0) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,024.5", 1024.5),
        ("80.7k", 80_700.0),
        ("1.25M", 1_250_000.0),
        ("2B", 2e9),
        ("k", None),
        ("infk", None),
        ("inf", None),
        ("", None),
        (None, None),
        ("x", None),
    ],
)
def test_numbers_with_commas(text: str | None, number: float | None) -> None:
    assert metric_lines.parse_number(text) == number


def test_white_space_of_a_pattern_does_not_join_lines() -> None:
    patterns = metric_lines.compile_patterns({"step": r"step\s+(?P<step>[0-9]+)$"})
    assert [line["step"] for line in metric_lines.parse_lines(patterns, "step\n7\nstep 8\nstep 9 x\n", 1.0)] == [8]


@given(text=st.text(st.sampled_from("step saved0123456789\n"), max_size=200))
def test_a_piece_gives_what_its_lines_give(text: str) -> None:
    whole = metric_lines.parse_lines(PATTERNS, text, 1.0)
    by_line = [line for raw in text.split("\n") for line in metric_lines.parse_lines(PATTERNS, raw, 1.0)]
    assert [sorted(line.items()) for line in whole] == [sorted(line.items()) for line in by_line]


@given(text=st.text(max_size=80))
def test_any_text_is_parsed(text: str) -> None:
    for line in metric_lines.parse_lines(PATTERNS, text, 1.0):
        assert all(math.isfinite(value) for value in line.values())


def test_figures_without_a_step_are_of_the_last_one_across_pieces() -> None:
    patterns = metric_lines.compile_patterns({"step": "step (?P<step>[0-9]+)", "figures": r"loss=(?P<loss>\S+)"})
    states: metric_lines.States = {}
    assert metric_lines.parse_lines(patterns, "loss=9\n", 1.0, states) == [], "of no step that is known"
    metric_lines.parse_lines(patterns, "step 7\n", 1.0, states)
    assert metric_lines.parse_lines(patterns, "loss=2.5\nloss=none\n", 2.0, states) == [
        {"at": 2.0, "loss": 2.5, "step": 7, "of_last": True}
    ]


def test_a_step_within_an_epoch_and_a_bar_of_something_else() -> None:
    patterns = metric_lines.compile_patterns({"step": r"(?:E(?P<epoch>[0-9]+) )?(?P<step>[0-9]+)/(?P<total>[0-9]+)"})
    one = metric_lines.compile_patterns(
        {"epoch": r"^Epoch (?P<epoch1>[0-9]+)$", "step": r"(?P<step>[0-9]+)/(?P<total>[0-9]+)"}
    )
    text = "Epoch 1\n1/10\nEpoch 3\n2/10\n5/5\n"
    assert [line["step"] for line in metric_lines.parse_lines(one, text, 1.0)] == [1, 22], "of an epoch on its own line"
    text = "E0 9/10\nE1 1/10\nE2 10/10\n"
    assert [line["step"] for line in metric_lines.parse_lines(patterns, text, 1.0)] == [9, 11, 30]
    assert [line["step"] for line in metric_lines.parse_lines(patterns, "1/10\n1/4\n4/4\n2/10\n", 1.0)] == [1, 2]


def test_a_figure_belongs_to_the_last_step_of_its_own_rank() -> None:
    patterns = metric_lines.compile_patterns({"step": "step (?P<step>[0-9]+)", "figures": r"loss=(?P<loss>\S+)"})
    text = "[default0]:step 5\n[1,1]<stdout>:step 4\n[default0]:loss=0.5\n[rank1]:loss=0.7\n"
    found = [(line["rank"], line["step"], line.get("loss")) for line in metric_lines.parse_lines(patterns, text, 1.0)]
    assert found == [(0, 5, None), (1, 4, None), (0, 5, 0.5), (1, 4, 0.7)]
    named = metric_lines.compile_patterns({"step": r"r(?P<rank>[0-9]+) step (?P<step>[0-9]+)"})
    assert metric_lines.parse_lines(named, "r3 step 8\n", 1.0) == [{"at": 1.0, "step": 8, "rank": 3}]


def test_a_program_is_known_by_what_it_prints() -> None:
    """transformers prints its losses without a step, and the step in a bar that any program may draw."""
    forms = parse_job({"name": "x", "script": "/t.py"}).metrics.forms
    reader = metric_lines.LineReader(forms)
    assert reader.is_guessed and reader.read("  5%|#    | 1/20 [00:01<00:20, 1.1s/it]\nloading\n", 1.0) == []
    assert reader.read(" 50%|##   | 10/20 [00:10<00:10, 1.1s/it]\n", 2.0) == []
    found = reader.read("{'loss': 0.4, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.5}\n", 3.0)
    # What was printed before it was known is read then, each line with its own time.
    assert [(line["at"], line["step"], line.get("loss")) for line in found] == [
        (1.0, 1, None),
        (2.0, 10, None),
        (3.0, 10, 0.4),
    ]
    assert {line["preset"] for line in found} == {"transformers"}
    (step,) = reader.read(" 55%|##   | 11/20 [00:11<00:09, 1.1s/it]\n", 4.0)
    assert (step["step"], step["preset"]) == (11, "transformers")
    reader.stop()
    assert not reader and reader.read(" 60%|##   | 12/20 [00:11<00:09, 1.1s/it]\n", 5.0) == []


def test_what_was_printed_before_a_program_is_known_is_kept_to_a_bound() -> None:
    reader = metric_lines.LineReader(parse_job({"name": "x", "script": "/t.py"}).metrics.forms)
    for number in range(3000):
        assert reader.read(f"  1%|#    | {number}/9000 [00:01<00:20, 1.1s/it]{' ' * 40}\n", float(number)) == []
    found = reader.read("{'loss': 0.4, 'epoch': 0.5}\n", 4000.0)
    assert found[-1]["step"] == found[-2]["step"] == 2999 and 500 < len(found) < 1500
    assert found[0]["at"] == found[0]["step"] == 3000 - (len(found) - 1)


def test_a_bar_of_something_else_that_was_drawn_first_is_passed_over() -> None:
    """Weights are loaded, and a model is evaluated, before the first step; the job may name its preset or not."""
    loading = "Loading checkpoint shards: 100%|###| 2/2 [00:03<00:00, 1.51s/it]\n"
    training = "  5%|#    | 1/20 [00:01<00:20, 1.1s/it]\n{'loss': 0.4, 'epoch': 0.1}\n"
    for metrics in ({}, {"preset": "transformers"}):
        reader = metric_lines.LineReader(parse_job({"name": "x", "script": "/t.py", "metrics": metrics}).metrics.forms)
        assert [line["step"] for line in reader.read(loading + training, 1.0)] == [1, 1]
    evaluation = "100%|###| 2/2 [00:03<00:00, 1.51s/it]\n{'eval_loss': 0.5, 'epoch': 0}\n"
    reader = metric_lines.LineReader(parse_job({"name": "x", "script": "/t.py"}).metrics.forms)
    assert [line["step"] for line in reader.read(evaluation + training, 1.0)] == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 1:  25%|##   | 5/20 [00:01<00:03, 4.97it/s]\n",
        "100%|#####| 5000/5000 [00:01<00:00, 4970.1it/s]\n",
        "step 5 of 20: loss is printed elsewhere\niteration 3 done\n",
        "Map:  50%|##   | 500/1000 [00:01<00:01, 500.00 examples/s]\n",
        "{'eval_loss': 0.4, 'eval_runtime': 1.0}\n",
    ],
)
def test_no_step_is_guessed_of_what_any_program_may_print(text: str) -> None:
    reader = metric_lines.LineReader(parse_job({"name": "x", "script": "/t.py"}).metrics.forms)
    assert reader.read(text, 1.0) == [] and reader.read(text, 2.0) == []


def test_patterns_of_the_job_are_read_alone() -> None:
    job = parse_job({"name": "x", "script": "/t.py", "metrics": {"step_pattern": "at (?P<step>[0-9]+)"}})
    reader = metric_lines.LineReader(job.metrics.forms)
    assert not reader.is_guessed and reader.read("at 3\niter 4: loss 1.0, time 5.00ms\n", 1.0) == [
        {"at": 1.0, "step": 3}
    ]
    assert not metric_lines.LineReader({})


def test_a_step_that_a_float_does_not_hold_is_none() -> None:
    """Else another number than the printed one would be shown."""
    patterns = metric_lines.compile_patterns(
        {"step": "step (?P<step>[0-9]+)", "checkpoint_step": "saved (?P<step>[0-9]+)"}
    )
    text = "step 9007199254740993\nsaved 99999999999999999999\nstep 9007199254740991\n"
    assert [line.get("step") for line in metric_lines.parse_lines(patterns, text, 1.0)] == [9007199254740991]
