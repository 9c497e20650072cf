# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host falls silent without a reset, as with a power loss or a pulled cable: each playbook says so in time."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e import conftest
from ansible_collections.muster.training.tests.e2e.cut_world import CutWorld, lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, Result, until
from ansible_collections.muster.training.tests.support import debian

pytestmark = pytest.mark.usefixtures("sshd_works")
SAID_S = 30.0
ANSWERED_S = 15.0
LAST = NODES[-1]
# A node of the run, the one that leads the rendezvous or another, and how long after the last question it is cut.
REPEATS = [pytest.param(n, marks=() if n < 1 else pytest.mark.long, id=f"try {n + 1}") for n in range(20)]
CUTS = [pytest.param(n, marks=() if n < 1 else pytest.mark.long, id=f"cut {n + 1}") for n in range(10)]


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[CutWorld]:
    """Two nodes behind links, with sshd."""
    if reason := lacking():
        conftest.lacking(reason)
    found = CutWorld(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.close()


@pytest.fixture
def firewall() -> None:
    """A program with which a node cuts itself off."""
    if not debian.program("iptables") and (reason := debian.obtain("nft", "nftables")):
        conftest.lacking(reason)


def ends_well(result: Result) -> None:
    assert result.code == 0 and "Traceback" not in result.output, result.output


@pytest.mark.parametrize("number", REPEATS)
def test_a_silent_host_is_told(world: CutWorld, number: int) -> None:
    """The lines that follow show their age; when the link is back, the run is followed to its end."""
    play = world.follow(restart={"wait_s": 600})
    node = NODES[number % 2]
    # Anywhere between two questions.
    time.sleep(number * 0.45)
    took = world.said(play, f"{node} does not answer", world.cut(node))
    print(f"silent host said after {took:.1f} s")
    assert took <= SAID_S
    world.said(play, f"last answer of {node} ", time.monotonic())
    world.net.plug(node)
    back = world.said(play, f"{node} answers again", time.monotonic())
    assert back <= SAID_S
    world.finish()
    ends_well(play.wait())


@pytest.mark.parametrize("number", CUTS)
def test_a_short_cut_is_no_loss(world: CutWorld, number: int) -> None:
    play = world.follow()
    time.sleep(number * 0.8)
    world.cut(NODES[number % 2])
    time.sleep(15)
    world.net.plug(NODES[number % 2])
    time.sleep(18)
    world.finish()
    result = play.wait()
    ends_well(result)
    assert "does not answer" not in result.output and "lost" not in result.output


def test_a_lost_host_ends_the_run_after_its_patience(world: CutWorld) -> None:
    play = world.follow(restart={"wait_s": 35})
    world.cut(LAST)
    result = play.wait(120)
    assert result.code != 0 and f"{LAST} did not answer for 35 s" in result.output, result.output
    assert result.seconds < 90 and world.record()["outcome"] == "lost"


@pytest.mark.parametrize("playbook", ["status", "logs", "diagnose"])
def test_readers_answer_with_a_dead_host(world: CutWorld, playbook: str) -> None:
    """With connections that were open before, as a terminal beside ``train`` has them."""
    play = world.follow(restart={"wait_s": 600})
    ends_well(world.play(playbook))
    world.cut(LAST)
    result = world.play(playbook)
    print(f"{playbook} answered after {result.seconds:.1f} s")
    ends_well(result)
    assert result.seconds <= ANSWERED_S and LAST in result.output, result.output
    world.net.plug(LAST)
    world.finish()
    ends_well(play.wait())


def test_cancel_with_a_dead_host_says_what_runs_on(world: CutWorld) -> None:
    """It is not recorded as cancelled; a second cancel, with the host back, ends it."""
    assert world.play(job=world.step_job(), training_job_wait=False).code == 0
    world.cut(LAST)
    result = world.play("cancel")
    print(f"cancel answered after {result.seconds:.1f} s")
    assert result.code != 0 and result.seconds <= ANSWERED_S, result.output
    error = result.errors[0]
    assert f"stopped on {NODES[0]}" in error and f"still be running on {LAST}" in error, error
    assert world.record()["outcome"] is None and len(world.supervisors(LAST)) == 1
    world.net.plug(LAST)
    assert world.play("cancel").code == 0
    assert world.record()["outcome"] == "cancelled" and not world.processes()


def test_heal_with_a_dead_host_answers(world: CutWorld) -> None:
    assert world.play(job=world.step_job(), training_job_wait=False).code == 0
    world.cut(LAST)
    result = world.play("heal", muster_heal_wait=False)
    print(result.output)
    print(f"heal answered after {result.seconds:.1f} s")
    assert result.seconds <= 30 and LAST in result.output and "Traceback" not in result.output, result.output


@pytest.mark.usefixtures("firewall")
def test_a_drill_cuts_a_node_off_and_the_run_goes_on(world: CutWorld) -> None:
    """The node drops all packets by itself; the drill is proven by the steps after its link is back."""
    drill = {"target": "cut", "node": LAST, "at_step": 10, "seconds": 45}
    play = world.follow(restart={"wait_s": 600}, drill=drill)
    world.said(play, f"cut {LAST} off its network for 45 s", time.monotonic())
    world.said(play, f"{LAST} does not answer", time.monotonic())
    world.said(play, f"{LAST} answers again", time.monotonic())
    after = world.steps()
    until(lambda: world.steps() > after, "steps after the cut", 30)
    world.finish()
    result = play.wait()
    ends_well(result)
    proof = world.record()["drill"]
    print(f"drill cut: noticed after {proof['seconds_to_notice']:.1f} s")
    assert proof["resumed"] and proof["seconds_to_notice"] <= SAID_S, proof
    assert (proof["steps_lost"], proof["world_size"], len(world.record()["attempts"])) == (0, 2, 1)


@pytest.mark.usefixtures("firewall")
def test_a_run_that_a_cut_ended_is_a_failed_drill(world: CutWorld) -> None:
    drill = {"target": "cut", "node": LAST, "at_step": 10, "seconds": 70}
    play = world.follow(restart={"wait_s": 28}, drill=drill)
    result = play.wait(150)
    assert result.code != 0 and f"{LAST} did not answer for 28 s" in result.output, result.output
    assert world.record()["outcome"] == "lost" and not world.record()["drill"]["resumed"]


def test_teardown_with_a_dead_host_ends_and_names_it(world: CutWorld) -> None:
    rented = {
        name: {"muster_node": {"ownership": "rented", "provider": "x", "name": name, "id": name}} for name in NODES
    }
    assert world.play(job=world.step_job(), training_job_wait=False).code == 0
    world.cut(LAST)
    safe = {"muster_hygiene": False, "muster_rented_hosts": "muster_nodes", "muster_cluster": "local"}
    result = world.play("teardown", limit_s=180, hosts=rented, **safe)
    print(result.output)
    print(f"teardown ended after {result.seconds:.1f} s")
    assert LAST in result.output and "Traceback" not in result.output, result.output
    assert result.seconds <= 120 and not world.supervisors(NODES[0])
