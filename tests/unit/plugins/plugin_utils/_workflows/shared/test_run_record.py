# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run record: what a story becomes, and what it cost."""

from __future__ import annotations

import dataclasses
import datetime
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord, SavedCheckpoint
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record

JOB = parse_job({"name": "x", "script": "/t.py", "nodes": 2, "processes_per_node": 2})
PRICES = {"a": 2.0, "b": 1.6}
T0 = 1_700_000_000.0


def new() -> RunRecord:
    return run_record.new_record("x-1", to_yaml_names(JOB), T0, launcher="torchrun")


def story(*, resumed: bool = False, failed: bool = False) -> RunHistory:
    told = RunHistory()
    for rank in range(4):
        line = {
            "kind": "worker_started",
            "attempt": 1,
            "rank": rank,
            "node": "ab"[rank // 2],
            "at": T0 + 5,
            "world_size": 4,
        }
        told.event(line)
    told.metric({"at": T0 + 10, "step": 1, "loss": 2.0})
    told.metric({"at": T0 + 20, "step": 30})
    told.metric({"at": T0 + 20, "checkpoint_step": 20, "path": "/c/20"})
    if failed or resumed:
        told.event({"kind": "worker_exit", "attempt": 1, "rank": 3, "node": "b", "at": T0 + 21, "exit_code": 9})
    if resumed:
        for rank in range(4):
            told.event({"kind": "worker_started", "attempt": 2, "rank": rank, "node": "ab"[rank // 2], "at": T0 + 30})
        told.metric({"at": T0 + 31, "resumed_from_step": 20})
        told.metric({"at": T0 + 35, "step": 21})
    return told


def test_a_new_record_knows_what_was_asked_and_nothing_else() -> None:
    value = new().to_dict()
    assert set(json.loads(json.dumps(value))) == set(value)
    assert (value["schema"], value["state"], value["world_size"]) == (1, "starting", {"asked": 4, "seen": None})
    assert value["submitted_at"] == "2023-11-14T22:13:20.000+00:00" and value["attempts"] == []
    unknown = (
        "outcome",
        "exit_code",
        "ended_at",
        "first_step_at",
        "checkpoint",
        "steps_lost",
        "transport_seen",
        "fabric",
    )
    assert [value[key] for key in unknown] == [None] * len(unknown) and value["cost"] == {
        "usd": None,
        "complete": False,
    }


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        ({"nodes": 2, "processes_per_node": 3, "gpus_per_node": 8}, 6),
        ({"nodes": 2, "gpus_per_node": 8}, 16),
        ({"nodes": 2, "processes_per_node": None, "gpus_per_node": 0}, 2),
    ],
)
def test_the_ranks_that_were_asked(job: dict[str, t.Any], ranks: int) -> None:
    assert run_record.job_world_size(job) == ranks


def test_a_run_that_continues_with_more_nodes_asks_for_their_ranks() -> None:
    ended = run_record.end_record(new(), T0 + 9, outcome="cancelled", cause="cancelled", detail="by hand", exit_code=1)
    grown = run_record.reopen_record(ended, "starting", {**to_yaml_names(JOB), "nodes": 3})
    assert (grown.world_size.asked, grown.job["nodes"], grown.state) == (6, 3, "starting")
    assert (grown.outcome, grown.cause, grown.detail, grown.ended_at) == (None, None, None, None)


def test_a_run_in_its_first_attempt() -> None:
    value = run_record.update_record(new(), story(), PRICES, T0 + 3600).to_dict()
    assert (value["state"], value["first_step_at"]) == ("running", "2023-11-14T22:13:30.000+00:00")
    assert value["world_size"] == {"asked": 4, "seen": 4} and value["steps_lost"] == 0
    assert value["checkpoint"] == {"step": 20, "path": "/c/20"} and value["cost"] == {"usd": 3.6, "complete": False}
    (attempt,) = value["attempts"]
    assert (attempt["n"], attempt["cause"], attempt["exit_code"], attempt["ranks"]) == (1, None, None, 4)
    assert (attempt["first_step"], attempt["last_step"], attempt["logs"]) == (1, 30, ["logs/a.log", "logs/b.log"])
    assert [(node["id"], node["price_usd_per_hour"], node["to"]) for node in attempt["nodes"]] == [
        ("a", 2.0, None),
        ("b", 1.6, None),
    ]


def test_a_run_that_crashed_and_resumed() -> None:
    value = run_record.update_record(new(), story(resumed=True), PRICES, T0 + 40).to_dict()
    first, second = value["attempts"]
    assert (first["cause"], first["node"], first["exit_code"]) == ("crash", "b", 9)
    assert first["ended_at"] == "2023-11-14T22:13:41.000+00:00"
    assert (second["first_step"], second["resumed_from_step"], second["ended_at"]) == (21, 20, None)
    assert (value["steps_lost"], value["seconds_lost"], value["state"]) == (10, 15.0, "running")


def test_between_two_attempts_a_run_is_restarting() -> None:
    told = story(resumed=False, failed=True)
    told.event({"kind": "worker_started", "attempt": 2, "rank": 0, "node": "a", "at": T0 + 30})
    assert run_record.update_record(new(), told, PRICES, T0 + 31).state == "restarting"
    assert run_record.update_record(new(), RunHistory(), PRICES, T0).state == "starting"


def test_an_ended_run_stays_ended_and_its_cost_is_complete() -> None:
    ended = run_record.end_record(
        run_record.update_record(new(), story(), PRICES, T0 + 50), T0 + 7200, outcome="succeeded", exit_code=0
    )
    value = run_record.update_record(ended, story(), PRICES, T0 + 9999).to_dict()
    assert (value["state"], value["duration_s"], value["outcome"]) == ("ended", 7200.0, "succeeded")
    assert value["cost"] == {"usd": 7.2, "complete": True}


def test_an_estimated_step_of_a_checkpoint_is_recorded_as_one() -> None:
    told, by = story(), {"layout": "accelerate", "layout_by": "its files", "step_by": "the last printed before it"}
    told.metric({"at": T0 + 21, "checkpoint_step": 27, "path": "/c/1", **by})
    record = run_record.update_record(new(), told, PRICES, T0 + 50)
    assert record.to_dict()["checkpoint"] == {"step": 27, "path": "/c/1", **by}
    assert record.checkpoint is not None and record.checkpoint.describe_step() == "about step 27"
    told.metric({"at": T0 + 22, "checkpoint_step": 30, "path": "/c/2", "layout": "lightning", "layout_by": "its name"})
    known = run_record.update_record(record, told, PRICES, T0 + 51).checkpoint
    assert known is not None and known.describe_step() == "step 30"


def test_a_price_that_is_unknown_makes_no_sum() -> None:
    value = run_record.update_record(new(), story(), {"a": 2.0, "b": None}, T0 + 3600).to_dict()
    assert value["cost"] == {"usd": None, "complete": False}
    assert run_record.update_record(new(), story(), {"a": 0.0, "b": 0.0}, T0 + 3600).cost.usd == 0.0


def test_what_was_known_before_is_kept_when_the_story_is_empty() -> None:
    before = run_record.update_record(new(), story(), PRICES, T0 + 50)
    after = run_record.update_record(before, RunHistory(), PRICES, T0 + 60)
    assert after.checkpoint == SavedCheckpoint(20, "/c/20") and after.first_step_at == before.first_step_at


@given(at=st.floats(0, 4e9))
def test_times_are_iso_8601_in_utc_to_the_millisecond(at: float) -> None:
    text = run_record.format_time(at)
    assert text is not None and text.endswith("+00:00")
    assert datetime.datetime.fromisoformat(text).timestamp() == pytest.approx(at, abs=0.002)
    assert run_record.format_time(None) is None


@pytest.mark.parametrize("at", [1.7e12, 1e300, float("inf"), float("nan"), -1e15])
def test_what_is_no_time_is_unknown(at: float) -> None:
    assert run_record.format_time(at) is None


def test_a_node_that_was_replaced_costs_until_the_next_attempt_and_its_replacement_from_there() -> None:
    told = story(resumed=True)
    # The second attempt is on a third node instead of the second one.
    told.attempts[1].ranks = {rank: ("c" if name == "b" else name) for rank, name in told.attempts[1].ranks.items()}
    begun = told.attempts[1].started_at - T0
    prices = {"a": 3600.0, "b": 3600.0, "c": 3600.0}
    cost = run_record.update_record(new(), told, prices, T0 + 1000).cost
    assert cost.usd == pytest.approx(1000 + begun + (1000 - begun))
    # One without a rank, such as mpirun's, counts for the whole run.
    assert run_record.update_record(new(), told, {"launcher": 3600.0}, T0 + 1000).cost.usd == 1000


def test_time_in_a_queue_costs_nothing() -> None:
    """Before the run had its place, and after it lost it until it came back."""
    told = story()
    waited = dataclasses.replace(
        new(), submitted_at=run_record.format_time(T0 - 36000) or "", admitted_at=run_record.format_time(T0)
    )
    assert run_record.update_record(waited, told, {"b": 3600.0}, T0 + 1000).cost.usd == 1000
    told.event({"kind": "set_back", "cause": "preempted", "at": T0 + 100})
    # It got pods and lost them again before any rank began.
    told.event({"kind": "set_back", "cause": "preempted", "at": T0 + 400})
    assert run_record.update_record(waited, told, {"b": 3600.0}, T0 + 1000).cost.usd == 100
    for rank in range(4):
        again = {"kind": "worker_started", "attempt": 1, "rank": rank, "node": "ab"[rank // 2], "at": T0 + 700}
        told.event({**again, "gang": "1/b", "world_size": 4})
    value = run_record.update_record(waited, told, {"b": 3600.0}, T0 + 1000)
    assert value.cost.usd == 400 and value.attempts[0].cause == "preempted"


def test_a_run_that_is_continued_has_cost_what_its_first_start_did() -> None:
    """The record has when its last start was admitted: nodes were held before that, too."""
    admitted = run_record.format_time(T0 + 600)
    continued = dataclasses.replace(new(), submitted_at=run_record.format_time(T0 - 60) or "", admitted_at=admitted)
    told = story()
    began = told.attempts[0].started_at - T0
    value = run_record.update_record(continued, told, {"b": 3600.0}, T0 + 1000)
    assert value.cost.usd == pytest.approx(1000 - began)
    assert value.account is not None and sum((value.account.usd or {}).values()) == pytest.approx(
        value.cost.usd, abs=0.1
    )


def test_no_node_is_held_between_an_end_and_its_continuation() -> None:
    told = story()
    told.event({"kind": "ended", "attempt": 1, "detail": "failed", "at": T0 + 100})
    told.event({"kind": "submitted", "attempt": 2, "at": T0 + 700})
    value = run_record.update_record(new(), told, {"b": 3600.0}, T0 + 1000)
    assert value.cost.usd == pytest.approx(400.0)
    stays = [(run_record.format_time(T0), run_record.format_time(T0 + 100)), (run_record.format_time(T0 + 700), None)]
    assert [(node.since, node.until) for node in value.held] == stays


def test_the_account_of_a_run_that_is_running_is_renewed_every_minute_and_more_often_while_it_is_young() -> None:
    first = run_record.update_record(new(), story(), {}, T0 + 1000)
    assert first.account is not None and first.account.usd == {}
    assert run_record.update_record(first, story(), {}, T0 + 1059).account is first.account
    later = run_record.update_record(first, story(), {}, T0 + 1061).account
    assert later is not None and sum(later.seconds.values()) == pytest.approx(1061.0)
    assert sum(first.account.seconds.values()) == pytest.approx(1000.0)
    young = run_record.update_record(new(), story(), {}, T0 + 8)
    assert run_record.update_record(young, story(), {}, T0 + 8.5).account is young.account
    assert run_record.update_record(young, story(), {}, T0 + 14).account is not young.account
    # One of which a price is not known has seconds alone.
    long = story()
    for step in range(100_000):
        long.readings.add_step(T0 + step / 1e4, step)
    assert run_record.update_record(first, long, {}, T0 + 1099).account is first.account, "its steps are many"
    assert run_record.update_record(first, long, {}, T0 + 1102).account is not first.account
    unknown = run_record.update_record(new(), story(), {"b": None}, T0 + 1000).account
    assert unknown is not None and unknown.usd is None and unknown.seconds == first.account.seconds


def test_a_run_that_another_controller_submitted_did_not_begin_when_it_was_taken_over() -> None:
    taken = run_record.new_record("x-1", to_yaml_names(JOB), T0 + 500)
    found = run_record.update_record(taken, story(), PRICES, T0 + 501)
    assert found.submitted_at == run_record.format_time(T0 + 5)
    own = story()
    own.event({"kind": "submitted", "attempt": 1, "at": T0 + 600})
    assert run_record.update_record(taken, own, PRICES, T0 + 601).submitted_at == taken.submitted_at
    assert run_record.end_record(found, T0 + 505).duration_s == 500.0


def test_a_run_does_not_end_before_it_was_submitted() -> None:
    """Whatever the clock of its cluster says."""
    assert run_record.end_record(new(), T0 - 5).duration_s == 0.0


def test_a_command_is_one_rank_a_node_whatever_its_gpus() -> None:
    assert run_record.job_world_size({"nodes": 2, "gpus_per_node": 8, "launcher": "command"}) == 2


@pytest.mark.parametrize(
    ("job", "seconds"), [({"checkpoints": {"grace_s": 45}}, 45), ({"checkpoints": {}}, 30), ({}, 30)]
)
def test_the_time_to_save_is_the_jobs_own_or_the_default(job: dict[str, t.Any], seconds: int) -> None:
    """Records of other versions may lack it."""
    assert run_record.read_grace_s(job) == seconds


def test_an_attempt_of_which_not_all_ranks_were_heard_ends_no_nodes_stay() -> None:
    told = story(resumed=True)
    told.attempts[1].ranks = {rank: name for rank, name in told.attempts[1].ranks.items() if name == "a"}
    assert run_record.update_record(new(), told, {"b": 3600.0}, T0 + 1000).cost.usd == 1000


def test_a_machine_that_was_lost_unheard_stays_in_the_record_and_in_the_cost() -> None:
    """Its controller was killed before it had read anything of it; the next one knows neither it nor its price."""
    story_lines = [
        {
            "kind": "submitted",
            "attempt": 1,
            "at": T0,
            "nodes": run_record.describe_nodes("ab", PRICES, {"b": "1f2e3d4c"}),
        },
        {"kind": "worker_started", "attempt": 1, "rank": 0, "node": "a", "at": T0 + 5, "world_size": 2},
        {
            "kind": "submitted",
            "attempt": 2,
            "at": T0 + 1800,
            "nodes": run_record.describe_nodes("ac", {"a": None, "c": 1.0}, {}),
        },
        {"kind": "worker_started", "attempt": 2, "rank": 0, "node": "a", "at": T0 + 1800, "world_size": 2},
        {"kind": "worker_started", "attempt": 2, "rank": 1, "node": "c", "at": T0 + 1800, "world_size": 2},
    ]
    told = RunHistory()
    for line in story_lines:
        told.event(line)
    # Another controller that has no price for "a" does not take it away.
    record = run_record.update_record(new(), told, {"a": None, "c": 1.0}, T0 + 3600)
    stays = [[(node.id, node.token, node.price_usd_per_hour) for node in item.nodes] for item in record.attempts]
    assert stays == [[("a", None, 2.0), ("b", "1f2e3d4c", 1.6)], [("a", None, 2.0), ("c", None, 1.0)]]
    assert record.cost.usd == pytest.approx(2.0 + 0.8 + 0.5)
