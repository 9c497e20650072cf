# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a running job by its steps, and how findings become its diagnosis."""

from __future__ import annotations

import dataclasses

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live import (
    NodeObservation,
    RunObservation,
    describe_gpus,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_causes import LIVE_CAUSES
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_rules import (
    diagnose_live,
    diagnose_text,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose.run import summarise
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.diagnosis.test_live_rules import (
    HUNG,
    MOVES,
    NOW,
    codes,
    end,
    judged,
    look,
    rank,
    steps,
)


def test_a_job_that_moves() -> None:
    found = judged(look("a", rank(0), steps=MOVES), look("b", rank(1)))
    assert (found.progress.state, found.outcome, found.causes) == ("moving", "pass", ())
    assert found.progress.last_step == 20 and found.progress.step_s == 1.0


def test_a_hang_that_nothing_explains_is_unproven() -> None:
    found = judged(look("a", rank(0), steps=HUNG), look("b", rank(1)))
    assert (found.progress.state, found.outcome) == ("hanging", "unproven") and codes(found) == [("stalled", None)]
    assert "step 10 was 491 s ago, a step usually takes 1 s" in found.causes[0].evidence


def test_steps_of_an_earlier_attempt_do_not_count() -> None:
    found = judged(look("a", rank(0, attempt=2, started_at=NOW - 5), steps=HUNG), look("b", rank(1, attempt=2)))
    assert found.progress.state in ("starting", "hanging")
    again = judged(look("a", rank(0, started_at=NOW - 5), steps=HUNG), look("b", rank(1, started_at=NOW - 5)))
    assert again.progress.state == "starting" and again.outcome == "unproven"


def test_a_run_whose_steps_stay_out_is_not_well() -> None:
    """Steps of a tenth of a second, the last one 26 seconds ago: it does not stand yet, and nothing says that it moves."""
    found = judged(look("a", rank(0), steps=steps(*(NOW - 29 + i / 10 for i in range(30)))), look("b", rank(1)))
    assert (found.progress.state, found.outcome) == ("late", "unproven")
    assert summarise(found)[1:] == [
        "no step for 26 s, a step usually takes 0.1 s; run diagnose again in half a minute",
        "no cause found",
    ]
    found = judged(look("a", rank(0), steps=steps(*(NOW - 34 + i / 10 for i in range(30)))), look("b", rank(1)))
    assert (found.progress.state, found.outcome) == ("hanging", "unproven") and codes(found) == [("stalled", None)]


def test_a_report_every_hundred_steps_is_no_hang() -> None:
    found = judged(look("a", rank(0), steps=[(NOW - 350 + 100 * i, 100 * i) for i in range(3)]), look("b", rank(1)))
    assert (found.progress.state, found.outcome) == ("moving", "pass")


def test_long_steps_are_no_hang() -> None:
    slow_steps = steps(*(NOW - 400 + 60 * i for i in range(6)))
    assert judged(look("a", rank(0), steps=slow_steps), look("b", rank(1))).progress.state == "moving"


def test_a_job_that_became_slow() -> None:
    times = [NOW - 100 + i for i in range(40)] + [NOW - 60 + 3 * i for i in range(1, 20)]
    found = judged(look("a", rank(0), steps=steps(*times)), look("b", rank(1)))
    assert (found.progress.state, found.outcome) == ("slow", "warn") and codes(found) == [("slowed_down", None)]


def test_a_run_that_ended_well_has_nothing_to_find() -> None:
    done = [rank(n, alive=False, exit_code=0) for n in range(2)]
    found = judged(look("a", done[0], steps=HUNG), look("b", done[1]))
    assert (found.progress.state, found.outcome, found.causes) == ("ended", "pass", ()) and found.has_succeeded
    half = judged(look("a", rank(0, world_size=2, alive=False, exit_code=0)), look("b"))
    assert half.outcome != "pass", "of the other rank nothing is known"


def test_a_run_that_succeeded_by_its_record_has_nothing_to_find() -> None:
    """Its folders were removed, and one of its nodes is gone."""
    gone = dataclasses.replace(look("b"), answer=None, problem="no answer")
    observation = RunObservation("r-1", (look("a"), gone), 2, "hosts", succeeded=True)
    found = diagnose_live(observation)
    assert (found.outcome, found.causes) == ("pass", ()) and found.has_succeeded
    assert {item.code for item in found.also} == {"node_unreachable"}
    said = ["run r-1: PASS \N{MIDDLE DOT} succeeded \N{MIDDLE DOT} nothing is left to find"]
    assert summarise(found, "40 % busy on a") == said
    assert summarise(found, problems=["attempt 2 did not resume"])[0].endswith("not clean: attempt 2 did not resume")
    assert not diagnose_live(dataclasses.replace(observation, succeeded=False)).has_succeeded


def test_what_a_log_said_before_does_not_stop_a_job_that_moves() -> None:
    log = diagnose_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "b/units/agent/log")
    found = judged(look("a", rank(0), steps=MOVES), look("b", rank(1), logs=[log]))
    assert found.causes == () and [item.code for item in found.also] == ["oom_gpu"] and found.outcome == "warn"


def test_what_is_so_now_counts_although_the_last_step_is_young() -> None:
    item = end(unsent_bytes=90_000, retransmits=5)
    found = judged(look("a", rank(0, sockets=[item]), steps=MOVES), look("b", rank(1)))
    assert (found.progress.state, found.outcome) == ("moving", "warn") and codes(found) == [("path_lost", "a")]


def test_a_node_that_is_gone_and_the_result_as_json() -> None:
    found = judged(look("a", rank(0), steps=HUNG), NodeObservation("b", None, "No route to host"))
    value = found.to_dict()
    assert value["causes"] == [
        {
            "code": "node_unreachable",
            "evidence": "No route to host",
            "fix": LIVE_CAUSES["node_unreachable"].fix,
            "node": "b",
        }
    ]
    assert value["state"] == "hanging" and value["ranks"] == {"expected": 2, "alive": 1, "unknown_on": ["b"]}
    assert "1 of 2 ranks alive, those of b not known" in summarise(found)[0]
    assert value["progress"]["last_step"] == 10 and value["also"][0]["code"] == "stalled"


def test_nodes_with_equally_busy_gpus_are_named_together() -> None:
    def node(name: str, *shares: float | None) -> NodeObservation:
        return NodeObservation(name, {"gpus": [{"busy_percent": share} for share in shares]})

    busy = [node(f"n{number}", 100.0, 100.0) for number in range(1, 11)]
    run = RunObservation("r", (*busy, node("idle", 0.0), node("both", 3.4, 97.0), node("mig", None)))
    assert describe_gpus(run) == (
        "0 % busy on idle; 3-97 % busy on both; 100 % busy on n1, n2, n3, n4, n5, n6, n7, n8 and 2 more"
    )
    assert describe_gpus(RunObservation("r", (NodeObservation("a", None), NodeObservation("b", {"gpus": []})))) == ""
