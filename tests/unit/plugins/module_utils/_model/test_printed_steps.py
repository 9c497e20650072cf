# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which printed lines are the steps of a run."""

from __future__ import annotations

import itertools
import json
import random
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.printed_steps import (
    PrintedSteps,
    describe,
    read_event,
)

Line = dict[str, t.Any]


def take(
    printed: PrintedSteps, node: str, line: Line, at: float = 1.0, attempt: int = 1, now: float = 0.0, lead: str = "a"
) -> list[tuple[int, float | None]]:
    taken = printed.take(node, {"at": at, **line}, attempt, now, lead)
    return [(item["step"], item.get("loss")) for item in taken]


def kinds(printed: PrintedSteps) -> list[str]:
    return [event["kind"] for event in printed.take_news()]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ranked", [True, False])
def test_the_losses_are_those_of_rank_0_whatever_is_read_first(seed: int, ranked: bool) -> None:
    """Two ranks print their own loss of each step: a mixture would be an improvement that none of them had."""
    order = random.Random(seed)
    rests = {node: [(step, loss) for step in range(990, 1010)] for node, loss in (("a", 2.0), ("b", 7.0))}
    printed, found = PrintedSteps(), []
    while any(rests.values()):
        node = order.choice([name for name, rest in rests.items() if rest])
        step, loss = rests[node].pop(0)
        rank = {"rank": "ab".index(node)} if ranked else {}
        found += take(printed, node, {"step": step, "loss": loss, **rank}, at=float(step))
    found += [(line["step"], line["loss"]) for line in printed.release_all()]
    assert found == [(step, 2.0) for step in range(990, 1010)]
    (event,) = printed.take_news()
    assert (event["kind"], event["node"], event["rank"]) == ("steps_read", "a", 0 if ranked else None)


def test_a_rank_that_prints_alone_is_read_once_rank_0_had_its_time() -> None:
    printed = PrintedSteps()
    for step in range(3):
        assert take(printed, "b", {"step": step, "rank": 3}, at=float(step), now=float(step)) == []
    assert printed.release(9.0, "a") == []
    assert [line["step"] for line in printed.release(10.0, "a")] == [0, 1, 2]
    assert take(printed, "b", {"step": 3, "rank": 3}, at=3.0) == [(3, None)]
    # Its next attempt is on another node, and is not waited for.
    assert take(printed, "c", {"step": 2, "rank": 3}, at=20.0, attempt=2) == [(2, None)]
    assert [(event["node"], event["rank"]) for event in printed.take_news()] == [("b", 3), ("c", 3)]


def test_what_is_held_is_not_lost_with_its_follower() -> None:
    first = PrintedSteps()
    take(first, "b", {"step": 1, "rank": 1})
    second = PrintedSteps(json.loads(json.dumps(first.keep())))
    assert [line["step"] for line in second.release_all()] == [1]
    third = PrintedSteps(json.loads(json.dumps(second.keep())))
    assert take(third, "b", {"step": 2, "rank": 1}, at=2.0) == [(2, None)], "who prints is known"
    assert PrintedSteps().keep() == {}


@pytest.mark.parametrize("epoch", [range(21), range(1, 21), range(10, 31, 10)])
def test_a_counter_that_begins_anew_gives_no_steps_and_loses_no_line(epoch: range) -> None:
    printed, at = PrintedSteps(), itertools.count(1)
    lines = [(step, 3.0 / number) for number, step in enumerate([*epoch, *epoch, *epoch], start=1)]
    found: list[tuple[int, float | None]] = []
    for step, loss in lines:
        moment = float(next(at))
        found += take(printed, "a", {"step": step, "loss": loss, "rank": 0}, at=moment)
        # A bar is drawn again.
        assert take(printed, "a", {"step": step, "loss": loss, "rank": 0}, at=moment) == []
    assert [loss for _step, loss in found] == [loss for _step, loss in lines]
    steps = [step for step, _loss in found]
    assert steps == sorted(steps), "a step that goes back would be work that was lost"
    (event,) = printed.take_news()
    assert (event["kind"], event["step"], event["back_to"]) == ("step_went_back", epoch[-1], epoch[0])
    assert "counts within an epoch" in describe(event) and "job.metrics.preset" in describe(event)


def test_a_counter_that_begins_anew_within_its_first_epoch_is_noticed_by_its_third_step() -> None:
    printed = PrintedSteps()
    steps = [15, 20, 25, 16, 17, 18, 19]
    for at, step in enumerate(steps):
        take(printed, "a", {"step": step, "loss": 1.0 / (at + 1), "rank": 0}, at=float(at))
    assert kinds(printed) == ["step_went_back"]


def test_what_is_printed_to_both_streams_or_late_is_no_new_epoch() -> None:
    printed = PrintedSteps()
    lines = [{"step": step, "loss": 1.0 / step, "rank": 0} for step in range(1, 40)]
    found = [item for line in [*lines, *lines] for item in take(printed, "a", dict(line))]
    assert [step for step, _loss in found] == list(range(1, 40)) and kinds(printed) == []
    # The log is read again from its beginning: the lines have their times of before.
    printed = PrintedSteps()
    for at in (0.0, 10.0, 0.0, 1.0, 2.0, 10.0, 11.0):
        take(printed, "a", {"step": int(at)}, at=at)
    assert kinds(printed) == []
    # One line comes late.
    assert take(printed, "a", {"step": 5}, at=12.0) == [] and kinds(printed) == []


def test_the_next_attempt_begins_where_it_resumed() -> None:
    printed = PrintedSteps()
    assert [take(printed, "a", {"step": step}, at=step) for step in (1, 2, 3)] == [
        [(1, None)],
        [(2, None)],
        [(3, None)],
    ]
    assert take(printed, "b", {"step": 2}, at=9.0, attempt=2, lead="b") == [(2, None)]
    assert kinds(printed) == []


def test_a_log_of_several_processes_without_ranks_is_said_and_an_evaluation_is_not() -> None:
    printed = PrintedSteps()
    for step in (1, 2):
        for loss in (2.0, 7.0):
            take(printed, "a", {"step": step, "loss": loss})
    assert kinds(printed) == []
    for loss in (2.0, 7.0):
        take(printed, "a", {"step": 3, "loss": loss})
    (event,) = printed.take_news()
    assert event["kind"] == "steps_mixed" and "group rank" in describe(event)
    ranked = PrintedSteps()
    for step in range(5):
        for loss in (2.0, 7.0):
            take(ranked, "a", {"step": step, "loss": loss, "rank": 0})
    assert kinds(ranked) == []


def test_figures_follow_the_step_they_are_of() -> None:
    printed = PrintedSteps()
    assert take(printed, "a", {"step": 7, "loss": 1.0, "of_last": True, "rank": 0}) == [], "of no step that was read"
    for at, step in enumerate((1, 2, 1)):
        take(printed, "a", {"step": step, "rank": 0}, at=float(at))
    assert take(printed, "a", {"step": 1, "loss": 0.5, "of_last": True, "rank": 0}, at=4.0) == [(3, 0.5)]


def test_what_a_program_reports_itself_is_not_read_from_what_it_prints_as_well() -> None:
    printed = PrintedSteps()
    assert take(printed, "a", {"step": 1, "preset": "nanogpt", "rank": 0}) == [(1, None)]
    printed.is_reported = True
    assert take(printed, "a", {"step": 2, "preset": "nanogpt", "rank": 0}) == []
    assert take(printed, "a", {"step": 2, "rank": 0}) == [(2, None)], "patterns of the job are meant"
    (event,) = printed.take_news()
    assert describe(event) == "reading the steps as nanogpt prints them (metrics.preset)"


def test_a_bar_moves_on_before_its_figures_do() -> None:
    """Its first drawing of a step has the loss of the step before, which would be one step off until the end."""
    printed, found = PrintedSteps(preset="lightning"), []
    drawn = [(1, None), (1, 3.0), (2, 3.0), (2, 2.9), (2, 2.9), (3, 2.9), (3, 2.5)]
    for at, (step, loss) in enumerate(drawn):
        found += take(
            printed, "a", {"step": step, "drawn": True, **({} if loss is None else {"loss": loss})}, at=float(at)
        )
    assert found == [(1, None), (1, 3.0), (2, None), (2, 2.9), (3, None), (3, 2.5)]
    assert kinds(printed) == []


def test_the_loss_of_a_step_may_come_on_a_later_line_of_it() -> None:
    """nanoGPT prints an evaluation of a step, then the step with its own loss."""
    printed = PrintedSteps(preset="nanogpt")
    found = [take(printed, "a", line) for line in ({"step": 9, "loss": 2.1}, {"step": 10}, {"step": 10, "loss": 2.0})]
    assert found == [[(9, 2.1)], [(10, None)], [(10, 2.0)]]
    assert take(printed, "a", {"step": 10, "loss": 1.9}) == []


def test_figures_above_a_bar_are_of_the_step_that_it_shows_next() -> None:
    """transformers' Trainer: between two drawings of the bar steps are made, and a loss is printed before the second."""
    printed = PrintedSteps()
    lines: list[Line] = [
        {"step": 17, "drawn": True},
        {"step": 17, "loss": 3.0, "of_next": True},
        {"step": 20, "drawn": True},
        {"step": 20, "drawn": True},
        {"step": 20, "loss": 2.5, "of_next": True},
        {"step": 20, "drawn": True},
    ]
    found = [item for line in lines for item in take(printed, "a", line)]
    assert found == [(17, None), (20, None), (20, 3.0), (20, 2.5)]


def test_figures_after_which_no_bar_comes_are_of_the_last_step() -> None:
    for later in (False, True):
        printed = PrintedSteps()
        assert take(printed, "a", {"step": 4, "drawn": True}) == [(4, None)]
        assert take(printed, "a", {"step": 4, "loss": 3.0, "of_next": True}) == []
        if later:
            assert printed.release(20.0, "a") == printed.release(29.0, "a") == []
        left = PrintedSteps(json.loads(json.dumps(printed.keep()))) if not later else printed
        rest = left.release(30.0, "a") if later else left.release_all()
        assert [(line["step"], line["loss"]) for line in rest] == [(4, 3.0)]
        assert left.release_all() == []


def test_what_one_rank_alone_prints_is_not_taken_for_several() -> None:
    """litgpt prints each part of a step; the ImageNet example prints on all ranks."""
    for preset, said in (("litgpt", []), ("torchvision", ["steps_mixed"])):
        printed = PrintedSteps(preset=preset)
        for step in range(1, 6):
            for loss in (2.0, 7.0):
                take(printed, "a", {"step": step, "loss": loss + step}, at=float(step))
        assert kinds(printed) == said


def test_what_an_older_follower_kept_is_read() -> None:
    printed = PrintedSteps()
    take(printed, "a", {"step": 4, "loss": 1.0})
    kept = json.loads(json.dumps(printed.keep()))
    del kept["attempts"]["1"]["drawn"]
    assert take(PrintedSteps(kept), "a", {"step": 5, "loss": 0.9}, at=2.0) == [(5, 0.9)]


def test_a_reported_line_without_a_time_is_said_once() -> None:
    printed = PrintedSteps()
    printed.note_untimed("a", {"gpu": 3})
    assert printed.take_news() == []
    for step in (1, 2):
        printed.note_untimed("a", {"step": step, "loss": 0.5})
    (event,) = printed.take_news()
    assert event == {"kind": "steps_untimed", "node": "a"}
    assert 'Add it in Unix seconds: {"at": time.time()' in describe(event)
    assert "is not read" in str(read_event(event)["problem"])
