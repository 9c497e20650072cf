# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A delete that is confirmed and does nothing, behind a listing that hides the machine for a while.

A provider that marks a machine as ending before it ends it looks like this. By every way that ends machines: what is
called proved gone is gone.
"""

from __future__ import annotations

import collections
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.fakes.api import Thing
from ansible_collections.muster.training.tests.fakes.cycle import Server
from ansible_collections.muster.training.tests.faults.reported_world import (
    Life,
    Reported,
    Step,
    bad,
    maybe,
    ok,
    then,
    wait,
)
from ansible_collections.muster.training.tests.faults.third_runpod import stop_first

HIDDEN_S = 45.0
MACHINES = ("lambda", "runpod", "vastai", "shadeform")
FIGURES: collections.Counter[str] = collections.Counter()


def hide_ended(life: Life) -> None:
    """Answer the first delete of each machine without an effect, and list nothing of it for a while."""
    whole_end, whole_visible = life.api.end, life.api.visible
    asked_at: dict[str, float] = {}

    def end(thing: Thing) -> None:
        if thing.id in asked_at:
            whole_end(thing)
        asked_at.setdefault(thing.id, life.clock.time())

    def visible(call: t.Any) -> list[Thing]:
        now = life.clock.time()
        return [item for item in whole_visible(call) if now >= asked_at.get(item.id, -HIDDEN_S) + HIDDEN_S]

    life.api.end, life.api.visible = end, visible


def fail_first(life: Life) -> None:
    """Let the first machine that is made be one that failed, so that rent replaces it."""
    first = {"lambda": "unhealthy", "runpod": "ERROR", "vastai": "exited", "shadeform": "error"}
    life.api.statuses = [first[life.case.product]]
    hide_ended(life)


def refuse_second(life: Life) -> None:
    """Sell one machine."""

    def before(operation: str) -> None:
        if operation == "create" and life.ours and not life.api.replies:
            life.api.reply("create", life.api.error(500, "out of order"))

    life.api.on_call = before
    hide_ended(life)


def note_what_bills(life: Life) -> None:
    """A command that says that everything was given back has to be right."""
    life.problems += [f"{item.name} bills" for item in life.ours]


def note_more_than(life: Life, count: int) -> None:
    """No second machine is ordered while the first one of its place bills: together they break the cap."""
    if len(life.ours) > count:
        life.problems.append(f"{len(life.ours)} bill, {count} expected")


ENDED = then(note_what_bills)
WAYS: dict[str, tuple[Step, ...]] = {
    "teardown": (ok("rent", 2), then(hide_ended), ok("teardown"), ENDED),
    "reap": (ok("rent", 2, lease_s=300), then(hide_ended), wait(600), ok("reap"), ENDED),
    "the reaper unit": (ok("rent", 2, lease_s=300), then(hide_ended), wait(600), ok("reaper"), ENDED),
    "a gang that stays incomplete": (then(refuse_second), bad("rent", "", 2, wait_timeout_s=600), ENDED),
    "heal": (
        ok("rent", 2),
        wait(600),
        then(stop_first),
        then(hide_ended),
        ok("heal", 2),
        then(lambda life: note_more_than(life, 2)),
        then(lambda life: life.count_orders(3)),
    ),
}


def live(folder: pathlib.Path, served: tuple[Server, str], product: str, steps: tuple[Step, ...]) -> Life:
    life = Life(folder, Reported("hidden", product, "", "", "", steps), *served)
    life.run()
    figures = {"machines alive": len(life.ours), "touched": life.touched, "orders beyond": life.excess}
    FIGURES.update({"cases": 1, **figures, "untrue outputs": len(life.untrue)})
    assert [name for name, count in figures.items() if count] + life.untrue + life.problems == []
    return life


# Of a cluster no part is given back, and heal differs by no provider.
CASES = [(product, way) for way in WAYS for product in MACHINES if way != "heal"]
CASES += [("runpod_cluster", way) for way in ("teardown", "reap", "the reaper unit")] + [("runpod", "heal")]


@pytest.mark.parametrize(("product", "way"), CASES)
def test_what_is_called_gone_is_gone(
    tmp_path: pathlib.Path, served: tuple[Server, str], product: str, way: str
) -> None:
    life = live(tmp_path, served, product, WAYS[way])
    deletes = sum(call[0].startswith("delete") for call in life.api.calls)
    assert deletes >= 2, "the first one did nothing"


@pytest.mark.parametrize("product", MACHINES)
def test_a_replaced_machine_counts_against_the_cap_until_it_is_gone(
    tmp_path: pathlib.Path, served: tuple[Server, str], product: str
) -> None:
    def before(life: Life) -> None:
        life.api.on_call = lambda operation: note_more_than(life, 1) if operation == "list" else None

    capped = ok("rent", 1, max_total_usd_per_hour=3.5)
    steps = (then(fail_first), then(before), capped, maybe("teardown"), ok("teardown"))
    live(tmp_path, served, product, steps)
