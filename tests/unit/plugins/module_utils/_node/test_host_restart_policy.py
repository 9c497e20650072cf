# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a supervisor does when its process ends."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node.host_restart_policy import (
    Budget,
    Decision,
    Ending,
    PolicyKind,
    decide,
)

NEVER: PolicyKind = "never"
WHOLE: PolicyKind = "whole"
TORCHRUN: PolicyKind = "torchrun"
STORE: PolicyKind = "store"


def budget(crashes: int = 0, lost: int = 0, fatal: tuple[int, ...] = ()) -> Budget:
    """Return a budget of two crashes, one lost agent and three restarts by the launcher."""
    return Budget(crashes, lost, 2, 1, fatal, 3)


@pytest.mark.parametrize(
    ("kind", "ending", "left", "decision"),
    [
        # A clean end is the end, whatever the policy.
        (NEVER, Ending(0, 0, ()), budget(), Decision(False, "succeeded", 0)),
        (TORCHRUN, Ending(0, 0, ((1,), (0,))), budget(), Decision(False, "succeeded", 0)),
        # never: the code of the rank, not of what ran it.
        (NEVER, Ending(1, 0, ((7, 143),)), budget(), Decision(False, "crash", 7)),
        (NEVER, Ending(3, 0, ()), budget(), Decision(False, "crash", 3)),
        (NEVER, Ending(137, 9, ()), budget(), Decision(False, "crash", 137)),
        # whole: crashes against their budget, a killed launcher against that of lost agents.
        (WHOLE, Ending(1, 0, ((7,),)), budget(crashes=1), Decision(True, "crash", 7)),
        (WHOLE, Ending(1, 0, ((7,),)), budget(crashes=2), Decision(False, "crash", 7)),
        (WHOLE, Ending(137, 9, ()), budget(crashes=2), Decision(True, "node_lost", 137)),
        (WHOLE, Ending(137, 9, ()), budget(lost=1), Decision(False, "node_lost", 137)),
        # torchrun: it has restarted ranks itself until its budget was spent; ending earlier is a lost agent.
        (TORCHRUN, Ending(1, 0, ((7,), (7,), (7,), (7,))), budget(), Decision(False, "crash", 7)),
        (TORCHRUN, Ending(1, 0, ((7,),)), budget(), Decision(True, "node_lost", 7)),
        (TORCHRUN, Ending(1, 0, ()), budget(lost=1), Decision(False, "node_lost", 1)),
        (TORCHRUN, Ending(137, 9, ((7,),) * 9), budget(), Decision(True, "node_lost", 7)),
        # A closed rendezvous stays closed, and no node was lost by it. One that a signal ended was lost.
        (TORCHRUN, Ending(1, 0, ((7,),), rendezvous="closed"), budget(), Decision(False, "rendezvous_closed", 7)),
        (TORCHRUN, Ending(1, 0, (), rendezvous="timeout"), budget(), Decision(False, "rendezvous_timeout", 1)),
        (TORCHRUN, Ending(137, 9, (), rendezvous="closed"), budget(), Decision(True, "node_lost", 137)),
        # Ranks on a full disk record nothing: that is no lost agent. One that ended well, or is fatal, is that.
        (TORCHRUN, Ending(1, 0, (), 2, True), budget(), Decision(False, "disk_full", 1)),
        (WHOLE, Ending(1, 0, ((7,),), 0, True), budget(), Decision(False, "disk_full", 7)),
        (NEVER, Ending(1, 0, ((1,),), 0, True), budget(), Decision(False, "disk_full", 1)),
        (TORCHRUN, Ending(0, 0, (), 0, True), budget(), Decision(False, "succeeded", 0)),
        (WHOLE, Ending(65, 0, (), 0, True), budget(fatal=(65,)), Decision(False, "fatal_exit_code", 65)),
        # The store serves until it is stopped: whatever ends it is a loss.
        (STORE, Ending(1, 0, ()), budget(), Decision(True, "node_lost", 1)),
        (STORE, Ending(137, 9, ()), budget(lost=1), Decision(False, "node_lost", 137)),
        # A fatal code ends the job, whether a rank or the launcher had it; that of an earlier attempt does not.
        (WHOLE, Ending(1, 0, ((65,),)), budget(fatal=(65,)), Decision(False, "fatal_exit_code", 65)),
        (WHOLE, Ending(65, 0, ()), budget(fatal=(65,)), Decision(False, "fatal_exit_code", 65)),
        (WHOLE, Ending(1, 0, ((65,), (2,))), budget(fatal=(65,)), Decision(True, "crash", 2)),
    ],
)
def test_decisions(kind: PolicyKind, ending: Ending, left: Budget, decision: Decision) -> None:
    assert decide(kind, ending, left) == decision


def test_ranks_that_were_stopped_along_did_not_fail() -> None:
    assert Ending(1, 0, ((143, 0), (143, 5, 0), ())).failed_attempts() == [(5,)]


CODES = st.sampled_from([0, 1, 2, 65, 137, 143])
ENDINGS = st.builds(
    Ending, CODES, st.sampled_from([0, 9, 15]), st.lists(st.lists(CODES, max_size=3).map(tuple), max_size=5).map(tuple)
)
COUNTS = st.integers(0, 3)
FATAL = st.sampled_from([(), (65,), (1, 65)])
BUDGETS = st.builds(Budget, COUNTS, COUNTS, COUNTS, COUNTS, FATAL, COUNTS)


@given(kind=st.sampled_from(t.get_args(PolicyKind)), ending=ENDINGS, left=BUDGETS)
def test_no_budget_is_ever_exceeded(kind: PolicyKind, ending: Ending, left: Budget) -> None:
    decision = decide(kind, ending, left)
    if decision.restart:
        assert kind != "never" and decision.cause in ("crash", "node_lost")
        assert left.lost < left.max_lost if decision.cause == "node_lost" else left.crashes < left.max_crashes
    if decision.cause == "succeeded":
        assert ending.exit_code == 0
    if decision.cause == "fatal_exit_code":
        assert decision.exit_code in left.fatal and not decision.restart
