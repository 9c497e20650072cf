# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three faults at once, drawn by a seed from all kinds, at any provider: the rules hold for what nobody thought of.

``MUSTER_TEST_ALL`` runs two hundred schedules, else forty, which cover every provider and most kinds. A failure names
its seed: ``MUSTER_FAULT_SEED=17`` runs that one alone, ``MUSTER_FAULT_SEED=2000-2099`` a hundred others.
"""

from __future__ import annotations

import collections
import os
import random

import pytest

from ansible_collections.muster.training.tests.fakes.api import FAULTS, Fault
from ansible_collections.muster.training.tests.fakes.cycle import PRODUCTS, CallCrash, Cycle, Server
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

FAULTS_EACH = 3
CHOSEN = os.environ.get("MUSTER_FAULT_SEED", "0-199" if os.environ.get("MUSTER_TEST_ALL") else "0-39")
SEEDS = range(int(CHOSEN.partition("-")[0]), int(CHOSEN.rpartition("-")[2]) + 1)
KINDS = [*FAULTS, "controller dies in a call", "controller dies at a ledger line", "disk full"]
FIGURES: collections.Counter[str] = collections.Counter()
DRAWN: collections.Counter[str] = collections.Counter()


def deal(card: int) -> str:
    """Return the kind of a card; shuffled packs are dealt over the seeds, so that few schedules cover all kinds."""
    pack, place = divmod(card, len(KINDS))
    return random.Random(pack).sample(KINDS, len(KINDS))[place]


def draw(seed: int, served: tuple[Server, str]) -> tuple[Cycle, str]:
    """Return a life with the faults of a seed, and their description."""
    rng = random.Random(seed)
    product = PRODUCTS[list(PRODUCTS)[seed % len(PRODUCTS)]]
    cycle = Cycle(product, *served)
    operations = [name for name, *_rest in cycle.api.routes()]
    words = [product.name]
    for kind in map(deal, range(seed * FAULTS_EACH, (seed + 1) * FAULTS_EACH)):
        DRAWN[kind] += 1
        nth = rng.randint(1, 6)
        if kind == "controller dies in a call":
            cycle.wire.plan = CallCrash(rng.randint(1, 25), rng.random() < 0.5, rng.random() < 0.3)
        elif kind == "controller dies at a ledger line":
            cycle.ledger.nth, cycle.ledger.when = rng.randint(1, 12), rng.choice(["before", "after"])
        elif kind == "disk full":
            cycle.ledger.full_from = rng.randint(1, 12)
        else:
            # Half of them where it matters most: a listing, a create or a delete.
            core = [name for name in operations if name.startswith(("list", "create", "delete"))]
            operation = rng.choice(core if rng.random() < 0.5 else operations)
            cycle.api.faults.append(Fault(operation, kind, nth))  # type: ignore[arg-type]
            kind = f"{kind} at {operation}#{nth}"
        words.append(kind)
    return cycle, ", ".join(words)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_left_whatever_happens_together(served: tuple[Server, str], seed: int) -> None:
    cycle, case = draw(seed, served)
    cycle.run()
    FIGURES["late effects that the reaper ended"] += cycle.settle()
    proof = cycle.reap()
    figures = {
        "machines alive": len(cycle.ours),
        "touched": cycle.touched,
        "orders beyond": cycle.excess,
        "untrue outputs": len(cycle.untrue),
    }
    FIGURES.update({"cases": 1, **figures})
    problems = [f"{name}: {count}" for name, count in figures.items() if count] + cycle.untrue
    problems += [] if proof.clean else [f"not clean: {proof.to_dict()}"]
    text = "".join(event.line() for event in cycle.ledger.events) + " ".join(cycle.failures)
    problems += ["a secret in the ledger or a message"] if "canary" in text or TOKEN in text else []
    assert problems == [], f"seed {seed} ({case})"


def test_the_schedules_draw_every_kind() -> None:
    print(f"\nfault schedules: seeds {SEEDS[0]} to {SEEDS[-1]}, {FAULTS_EACH} faults each, {len(DRAWN)} kinds")
    assert DRAWN.total() == len(SEEDS) * FAULTS_EACH
    assert len(SEEDS) * FAULTS_EACH < 2 * len(KINDS) or set(DRAWN) == set(KINDS)
