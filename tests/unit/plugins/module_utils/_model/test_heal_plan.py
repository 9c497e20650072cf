# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done about lost nodes: every combination of what may be known of one node, and every policy for the gang."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import heal_plan as subject
from ansible_collections.muster.training.plugins.module_utils._model.heal_plan import (
    FleetFacts,
    FleetNode,
    FleetRun,
    HealAction,
)

POLICIES = ("wait", "replace", "shrink", "fail")
EVERY_NODE = [
    FleetNode("b", token, listed, ready, silent_s, told, marked, joined, tainted, gpu_fault=fault)
    for token, listed, ready, silent_s, told, marked, joined, tainted, fault in itertools.product(
        (None, "0123abcd"),
        (None, True, False),
        (None, True, False),
        (0.0, 500.0),
        ("", "notice"),
        (False, True),
        (False, True),
        (False, True),
        ("", "GPU 0000:18:00.0: Xid 79"),
    )
]
A = FleetNode("a", ready=True, joined=True)


def run(policy: str = "replace", **more: t.Any) -> FleetRun:
    return FleetRun("r", 2, policy, **{"names": ("a", "b"), **more})


def kinds(actions: t.Iterable[HealAction]) -> list[str]:
    return [action.kind for action in actions]


@pytest.mark.parametrize("kubernetes", [False, True])
def test_the_rules_that_hold_for_every_node(kubernetes: bool) -> None:
    """Whatever is known: nothing is released before it surely ended, and nobody's machine is given back."""
    checked = 0
    for node, policy, terms in itertools.product(EVERY_NODE, POLICIES, (False, True)):
        facts = FleetFacts((A, node), run(policy, min_nodes=1), kubernetes, terms, terms)
        actions = subject.build_heal_plan(facts)
        done, lost = kinds(actions), bool(subject.loss_reason(node, facts))
        about = {action.kind: action for action in actions if "b" in action.nodes}
        assert "release" not in done or kubernetes
        if "release" in done and node.token is None:
            assert node.reported_lost or node.marked_lost or node.listed is False, (
                "silence alone never frees pods that nobody can end"
            )
        if "release" in done and node.token is not None:
            assert done.index("give_back") < done.index("release"), "two gangs would write"
        if node.token is None:
            assert not {"give_back", "mark_lost", "drain"} & set(done)
        assert ("drain" in done) == (
            kubernetes
            and lost
            and node.token is not None
            and node.joined
            and bool(node.ready)
            and node.listed is not False
        ), "only what answers can save"
        assert ("mark_lost" in about) == (lost and node.token is not None and not node.marked_lost)
        assert "rent" not in done or (terms and policy == "replace")
        assert "resume" not in done or "refuse" not in done
        assert ("close" in done) == (
            kubernetes and node.token is None and not lost and bool(node.gpu_fault) and node.joined
        ), "its other GPUs may be in use: its pods are evicted, and their files are not given to others"
        if lost or node.gpu_fault:
            resumed = [name for action in actions if action.kind == "resume" for name in action.nodes]
            assert "b" not in resumed
        assert all(action.reason for action in actions)
        checked += 1
    assert checked == len(EVERY_NODE) * 8


def test_all_is_well() -> None:
    fine = FleetFacts((A, dataclasses.replace(A, name="b")), run(ended=False))
    assert subject.build_heal_plan(fine) == ()
    assert subject.build_heal_plan(FleetFacts((A,))) == ()


LOST = FleetNode("b", "0123abcd", listed=False)


@pytest.mark.parametrize(
    ("policy", "more", "expected"),
    [
        ("replace", {"can_provision": True}, ["mark_lost", "give_back", "rent", "resume"]),
        ("replace", {}, ["mark_lost", "give_back", "refuse"]),
        ("shrink", {}, ["mark_lost", "give_back", "resume"]),
        ("wait", {}, ["mark_lost", "give_back", "wait"]),
        ("fail", {"can_provision": True}, ["mark_lost", "give_back", "fail"]),
        ("replace", {"can_provision": True, "kubernetes": True}, ["mark_lost", "give_back", "refuse"]),
        (
            "replace",
            {"can_provision": True, "kubernetes": True, "can_join": True},
            ["mark_lost", "give_back", "rent", "join", "resume"],
        ),
    ],
)
def test_the_policies(policy: str, more: dict[str, t.Any], expected: list[str]) -> None:
    assert kinds(subject.build_heal_plan(FleetFacts((A, LOST), run(policy, min_nodes=1), **more))) == expected


def test_a_gang_that_still_runs_on_hosts_is_stopped_before_it_goes_on() -> None:
    actions = subject.build_heal_plan(FleetFacts((A, LOST), run(ended=False), can_provision=True))
    assert kinds(actions) == ["mark_lost", "stop", "give_back", "rent", "resume"]
    assert actions[1].nodes == ("a",)
    cluster = FleetFacts((A, dataclasses.replace(LOST, joined=True)), run(ended=False), True, True, True)
    assert kinds(subject.build_heal_plan(cluster)) == ["mark_lost", "give_back", "release", "rent", "join"], (
        "its engine does the rest"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_saves_before_a_host_goes_that_was_given_notice(policy: str) -> None:
    notice = FleetNode("b", "0123abcd", listed=True, ready=True, reported_lost="its provider gave notice")
    actions = subject.build_heal_plan(
        FleetFacts((A, notice), run(policy, min_nodes=1, ended=False), can_provision=True)
    )
    assert kinds(actions)[:3] == ["mark_lost", "stop", "give_back"] and actions[1].nodes == ("a", "b")
    cluster = FleetFacts(
        (A, dataclasses.replace(notice, joined=True)), run(policy, min_nodes=1, ended=False), kubernetes=True
    )
    assert kinds(subject.build_heal_plan(cluster))[:4] == ["mark_lost", "drain", "give_back", "release"]


def test_a_spare_is_taken_before_anything_is_rented() -> None:
    spare = FleetNode("c", ready=True)
    actions = subject.build_heal_plan(FleetFacts((A, LOST, spare), run(), can_provision=True))
    assert kinds(actions) == ["mark_lost", "give_back", "resume"] and actions[-1].nodes == ("a", "c")


def test_a_node_that_the_gang_could_not_start_on_is_no_spare() -> None:
    """Another run's node, one without enough GPUs or a cordoned one is ready, and of no use."""
    taken = FleetNode("c", ready=True, joined=True, unfit="taken by run other (nvidia.com/gpu)")
    facts = FleetFacts((A, LOST, taken), run("replace", ended=False), True, True, True)
    actions = subject.build_heal_plan(facts)
    assert [(action.kind, action.count) for action in actions if action.kind in ("rent", "join")] == [
        ("rent", 1),
        ("join", 1),
    ]
    waits = subject.build_heal_plan(dataclasses.replace(facts, run=run("wait", ended=False)))
    assert "1 of 2 nodes are ready (on_lost_node is wait); c: taken by run other" in waits[-1].reason


def test_too_small_a_gang_waits() -> None:
    actions = subject.build_heal_plan(FleetFacts((A, LOST), run("shrink", min_nodes=2)))
    assert kinds(actions) == ["mark_lost", "give_back", "wait"] and "1 of 2 nodes are ready" in actions[-1].reason


def test_a_node_that_may_come_back_is_waited_for() -> None:
    """Nothing is rented or resumed beside it."""
    silent = FleetNode("b", "0123abcd", listed=True, ready=False, silent_s=30)
    actions = subject.build_heal_plan(FleetFacts((A, silent), run(), can_provision=True))
    assert kinds(actions) == ["wait", "wait"] and "lost in 90 s" in actions[0].reason
    late = dataclasses.replace(silent, silent_s=121)
    assert kinds(subject.build_heal_plan(FleetFacts((A, late), run(), can_provision=True))) == [
        "mark_lost",
        "give_back",
        "rent",
        "resume",
    ]


def test_an_own_node_of_a_cluster_needs_a_word() -> None:
    silent = FleetNode("b", ready=False, silent_s=900, joined=True)
    facts = FleetFacts((A, silent), run("shrink", min_nodes=1), kubernetes=True)
    actions = subject.build_heal_plan(facts)
    assert kinds(actions) == ["wait", "wait"] and "add it to lost_nodes if it is off" in actions[0].reason
    told = dataclasses.replace(facts, nodes=(A, dataclasses.replace(silent, reported_lost="it was named as lost")))
    assert kinds(subject.build_heal_plan(told)) == ["release", "resume"]


def test_a_node_that_is_back_takes_pods_again() -> None:
    back = FleetNode("b", ready=True, joined=True, tainted=True)
    assert kinds(subject.build_heal_plan(FleetFacts((A, back), run(ended=False), kubernetes=True))) == ["admit"]


def test_after_an_interruption_the_plan_goes_on_where_it_was() -> None:
    """Marked, or given back too: only what is missing is done."""
    marked = dataclasses.replace(LOST, marked_lost=True)
    assert kinds(subject.build_heal_plan(FleetFacts((A, marked), run(), can_provision=True))) == [
        "give_back",
        "rent",
        "resume",
    ]
    gone = FleetNode("b", reported_lost="no inventory, no cluster and no open lease knows it any more")
    assert kinds(subject.build_heal_plan(FleetFacts((A, gone), run(), can_provision=True))) == ["rent", "resume"]


def test_a_run_that_ended_with_all_nodes_there_goes_on() -> None:
    both = (A, dataclasses.replace(A, name="b"))
    assert kinds(subject.build_heal_plan(FleetFacts(both, run("wait")))) == ["resume"]


FAULTY = FleetNode("b", ready=True, joined=True, gpu_fault="GPU 0000:18:00.0: Xid 79, it has fallen off the bus")


def test_an_own_node_that_lost_a_gpu_is_closed_and_its_gang_resumes_elsewhere() -> None:
    spare = dataclasses.replace(A, name="c")
    facts = FleetFacts((A, FAULTY, spare), run(ended=False), kubernetes=True)
    (action,) = subject.build_heal_plan(facts)
    assert (action.kind, action.nodes) == ("close", ("b",)) and "Xid 79" in action.reason
    closed = FleetFacts((A, dataclasses.replace(FAULTY, closed=True), spare), run(ended=False, names=("a", "c")), True)
    assert kinds(subject.build_heal_plan(closed)) == ["wait"], "again, nothing is changed"


def test_a_host_that_lost_a_gpu_gets_no_gang() -> None:
    spare = FleetNode("c", ready=True)
    actions = subject.build_heal_plan(FleetFacts((A, FAULTY, spare), run(ended=False)))
    assert kinds(actions) == ["stop", "resume", "wait"]
    assert (
        actions[0].nodes == ("a", "b")
        and actions[1].nodes == ("a", "c")
        and "no gang is placed on it" in actions[2].reason
    )
    without = subject.build_heal_plan(FleetFacts((A, FAULTY), run("wait", ended=False)))
    assert kinds(without) == ["wait", "wait"], "a gang that may still run is not stopped for nothing"


def test_a_rented_machine_that_lost_a_gpu_is_replaced() -> None:
    rented = dataclasses.replace(FAULTY, token="0123abcd", listed=True)
    facts = FleetFacts((A, rented), run(ended=False), True, can_provision=True, can_join=True)
    assert kinds(subject.build_heal_plan(facts)) == ["mark_lost", "drain", "give_back", "release", "rent", "join"]
