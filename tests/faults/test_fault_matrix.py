# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault matrix: whatever goes wrong at whichever call of a life, nothing is left billing and all is proved.

Every product x every call of rent, use and teardown x every fault; the controller dying at every call and at every
ledger line. The providers are fakes on loopback that are checked against the providers' own API documents.
"""

from __future__ import annotations

import collections
import functools
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import TeardownProof
from ansible_collections.muster.training.plugins.module_utils._model.ledger import fold_events
from ansible_collections.muster.training.tests.fakes.api import FAULTS, Fault, FaultKind
from ansible_collections.muster.training.tests.fakes.cycle import NODES, PRODUCTS, CallCrash, Cycle, Server
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

CASES: collections.Counter[str] = collections.Counter()
COMPLETED: collections.Counter[str] = collections.Counter()
FIGURES: collections.Counter[str] = collections.Counter()


def check(cycle: Cycle, proof: TeardownProof, case: str, group: str) -> list[str]:
    """Return what is wrong at the end of a life."""
    CASES[group] += 1
    COMPLETED[group] += cycle.completed
    problems = []
    if not proof.clean and not cycle.api.lasting:
        problems.append(f"not clean: {proof.to_dict()}")
    # What takes effect after its proof is the reaper's.
    late = cycle.settle()
    proof = cycle.reap()
    if not proof.clean:
        problems.append(f"not clean after the reaper: {proof.to_dict()}")
    alive = len(cycle.ours)
    figures = {
        "machines alive": alive,
        "touched": cycle.touched,
        "orders beyond": cycle.excess,
        "untrue outputs": len(cycle.untrue),
    }
    FIGURES.update({"cases": 1, **figures})
    FIGURES["late effects that the reaper ended"] += late
    problems += [f"{name}: {count}" for name, count in figures.items() if count] + cycle.untrue
    leases = fold_events(cycle.ledger.events)
    open_ones = [f"{lease.token} {lease.state}" for lease in leases.values() if lease.open]
    if open_ones:
        problems.append(f"not verified: {open_ones}")
    if cycle.api.violations:
        problems.append(f"against the document: {sorted(set(cycle.api.violations))[:3]}")
    text = "".join(event.line() for event in cycle.ledger.events) + " ".join(cycle.failures)
    if "canary" in text or TOKEN in text:
        problems.append("a secret in the ledger or a message")
    return [f"{case}: {problem}" for problem in problems]


@functools.cache
def calls_of(name: str) -> tuple[tuple[str, int], ...]:
    """Return (operation, how often) of a life without a fault."""
    server = Server()
    with server.running() as url:
        cycle = Cycle(PRODUCTS[name], server, url)
        assert check(cycle, cycle.run(), name, "no fault") == []
        assert cycle.completed and cycle.failures == []
        return tuple(collections.Counter(call[0] for call in cycle.api.calls).items())


@functools.cache
def lines_of(name: str) -> int:
    """Return how many ledger lines a life without a fault writes."""
    server = Server()
    with server.running() as url:
        cycle = Cycle(PRODUCTS[name], server, url)
        cycle.run()
        return cycle.ledger.count


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_fault_at_any_call(served: tuple[Server, str], name: str, kind: FaultKind) -> None:
    problems: list[str] = []
    for operation, count in calls_of(name):
        for nth in range(1, count + 1):
            cycle = Cycle(PRODUCTS[name], *served)
            cycle.api.fault = Fault(operation, kind, nth)
            proof = cycle.run()
            case = f"{name} {operation}#{nth} {kind}"
            problems += check(cycle, proof, case, kind)
            if cycle.failures == ["ordered again"]:
                problems.append(f"{case}: ordered again")
    assert problems == []


@pytest.mark.parametrize("how", ["before", "after", "late"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_controller_dies_in_any_call(served: tuple[Server, str], name: str, how: str) -> None:
    problems: list[str] = []
    for nth in range(1, sum(count for _operation, count in calls_of(name)) + 1):
        for again in (False, True):
            cycle = Cycle(PRODUCTS[name], *served, crash=CallCrash(nth, how == "after", how == "late"))
            proof = cycle.run(again=again)
            problems += check(cycle, proof, f"{name} dies {how} call {nth} {again=}", f"crash {how} a call")
    assert problems == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_controller_dies_at_any_ledger_line(
    served: tuple[Server, str], name: str, when: t.Literal["before", "after"]
) -> None:
    problems: list[str] = []
    for nth in range(1, lines_of(name) + 1):
        for again in (False, True):
            cycle = Cycle(PRODUCTS[name], *served)
            cycle.ledger.nth, cycle.ledger.when = nth, when
            proof = cycle.run(again=again)
            problems += check(cycle, proof, f"{name} dies {when} line {nth} {again=}", f"crash {when} a ledger line")
    assert problems == []


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_gang_survives_what_is_only_passing(served: tuple[Server, str], name: str) -> None:
    """One lost or late answer to an order delays a gang; it is complete all the same, with no machine too many."""
    operation = {"runpod_cluster": "create_cluster"}.get(name, "create")
    for kind in ("error_after", "timeout", "timeout_after", "late_60s", "throttled_retry_after", "truncated", "html"):
        cycle = Cycle(PRODUCTS[name], *served)
        cycle.api.fault = Fault(operation, t.cast(FaultKind, kind), 1)
        cycle._rent()
        assert cycle.completed, (name, kind, cycle.failures)
        if name != "tailscale":
            things = [item for item in cycle.ours if item.fields.get("kind") != "cluster"]
            assert len(things) == NODES, (name, kind)


def test_the_matrix_is_whole() -> None:
    """The number of cases must not shrink unseen."""
    total = sum(CASES.values())
    print(f"\nfault matrix: {total} cases, {sum(COMPLETED.values())} gangs complete in spite of it")
    for group, count in sorted(CASES.items()):
        print(f"  {group}: {count} cases, {COMPLETED[group]} complete")
    assert total >= 1000
