# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listings that are whole and lie, drawn by a seed, over rent, heal, reap, the reaper and teardown.

The same over real playbooks is tests/e2e/test_money_trial.py. A machine that works is never ended for a listing alone.
"""

from __future__ import annotations

import collections
import os
import pathlib
import random
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.fakes.cycle import Server
from ansible_collections.muster.training.tests.faults.reported_world import Life, Reported, Step, maybe, ok, then, wait

MACHINES = ("lambda", "runpod", "vastai", "shadeform")
LIES = ("truth", "empty", "half", "ids unknown", "a second machine", "renamed")
# What heal is not for: it says nothing of a bill.
OF_BILLS = ("a second machine", "renamed")
COMMANDS = ("rent", "heal", "rent", "reap", "reaper")
SEEDS = 40 if os.environ.get("MUSTER_TEST_ALL") == "1" else 12
FIGURES: collections.Counter[str] = collections.Counter()


def lie(life: Life, kind: str) -> None:
    """Let the provider list what is not so, until it tells the truth again."""
    visible = type(life.api).visible
    hidden = {"empty": lambda _item: True, "ids unknown": lambda _item: True}.get(kind)
    if kind == "half":
        chosen = {item.id for item in life.ours[::2]}
        hidden = lambda item: item.id in chosen  # noqa: E731
    if hidden is not None:
        life.api.visible = lambda call: [item for item in visible(life.api, call) if not hidden(item)]
    if kind == "ids unknown":
        life.api.reply("look", life.api.error(500, "out of order"))
    for first in life.ours[:1]:
        if kind == "a second machine":
            life.api.make(first.name, **first.fields)
        elif kind == "renamed":
            first.name = "renamed-by-hand"


def tell_the_truth(life: Life) -> None:
    life.api.calm()
    vars(life.api).pop("visible", None)


def under(kind: str, step: Step) -> Iterator[Step]:
    """Yield a command under a lie, and the judgement that nothing which works has ended for it."""
    before: dict[str, str] = {}

    def begin(life: Life) -> None:
        before.update({item.id: item.name for item in life.ours})
        lie(life, kind)

    def end(life: Life) -> None:
        tell_the_truth(life)
        alive = {item.id: item for item in life.ours}
        gone, beside = before.keys() - alive.keys(), alive.keys() - before.keys()
        # Of two machines of one order either may be the second one.
        if gone and not (kind == "a second machine" and len(gone) == 1):
            life.problems.append(f"{step.command} under '{kind}' ended {sorted(gone)}")
        for key in beside if kind == "a second machine" else ():
            life.api.end(alive[key])
        for key, name in before.items():
            life.api.things[key].name = name

    yield from (then(begin), step, then(end))


def draw(seed: int) -> tuple[Step, ...]:
    dice = random.Random(seed)
    steps = [ok("rent", 2), wait(600)]
    for command in COMMANDS:
        options: dict[str, t.Any] = {"wait_timeout_s": 600} if command == "rent" else {}
        lies = [item for item in LIES if command != "heal" or item not in OF_BILLS]
        steps += [*under(dice.choice(lies), maybe(command, 2, **options)), wait(dice.choice((60, 900)))]
    return tuple(steps)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_lie_of_a_listing_ends_a_machine_or_is_repeated(
    tmp_path: pathlib.Path, served: tuple[Server, str], seed: int
) -> None:
    product = MACHINES[seed % len(MACHINES)]
    life = Life(tmp_path, Reported("lies", product, "", "", "", draw(seed)), *served)
    life.run()
    figures = {"machines alive": len(life.ours), "touched": life.touched}
    FIGURES.update({"cases": 1, **figures, "untrue outputs": len(life.untrue)})
    assert [name for name, count in figures.items() if count] + life.untrue + life.problems == []
