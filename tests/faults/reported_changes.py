# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reported faults while a pool is healed or extended, at RunPod."""

from __future__ import annotations

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_lambda import DSTACK, SKYPILOT, end
from .reported_runpod import all_calls, hide, show
from .reported_world import Life, Reported, bad, maybe, ok, then, wait


def hide_one(life: Life, seconds: float) -> None:
    """List one of ours less for a while."""
    until, key = life.clock.time() + seconds, life.first.id
    show(life, lambda item: None if item["id"] == key and life.clock.time() < until else item)


def revive(life: Life) -> None:
    """Let what the provider has taken away run again."""
    gone = next(item for item in life.api.things.values() if item.gone_at is not None and item.ended_at is None)
    gone.gone_at = None


CHANGES = (
    Reported(
        "heal while the API is away",
        "runpod",
        f"{DSTACK}/issues/2041",
        "every call answers 502 while heal runs",
        "nothing is lost, replaced or ended",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: all_calls(life, Answer(502, text="Bad Gateway"), 600)),
            maybe("heal", 2),
            then(lambda life: life.count_orders(2)),
            wait(600),
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "heal with an empty listing",
        "runpod",
        f"{DSTACK}/issues/1234",
        "listings are empty for 20 seconds while heal runs; the pods run",
        "what heal takes for lost is ended with proof before another one is ordered",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: hide(life, 20)),
            maybe("heal", 2),
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "a lost pod comes back",
        "runpod",
        f"{SKYPILOT}/issues/779",
        "a pod that heal has replaced is listed again later, running",
        "the reaper ends it",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: [end(life), life.clock.later(900.0, lambda: revive(life))]),
            wait(120),
            ok("heal", 2),
            wait(1000),
            ok("reaper"),
            ok("teardown"),
        ),
    ),
    Reported(
        "an extension while one pod is not listed",
        "runpod",
        f"{SKYPILOT}/issues/118",
        "one joined pod is missing from listings for 40 seconds while a third one is ordered",
        "it is awaited, three run in the end",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: hide_one(life, 40)),
            ok("rent", 3),
            then(lambda life: life.count_orders(3)),
            ok("teardown"),
        ),
    ),
    Reported(
        "a listing from a cache",
        "runpod",
        "https://github.com/hasura/support/issues/522",
        "deleted pods are listed as running for five minutes",
        "teardown waits for their absence",
        (ok("rent", 2), ok("teardown")),
        lambda life: setattr(life.api, "ending_s", 300.0),
    ),
    Reported(
        "a bill without a price",
        "runpod",
        f"{DSTACK}/issues/2490",
        "pods are listed with a cost of null",
        "the price of the offer counts against the caps",
        (
            ok("rent"),
            bad("rent", "price caps", 3, max_total_usd_per_hour=6.0),
            then(lambda life: life.count_orders(1)),
            ok("reap", says="2.99"),
            ok("teardown"),
        ),
        lambda life: show(life, lambda item: {**item, "cost": None}),
    ),
    Reported(
        "no replacement is allowed",
        "runpod",
        f"{SKYPILOT}/issues/3962",
        "every pod ends in ERROR, and max_replacements is 0",
        "each machine is ordered once",
        (
            bad("rent", "max_replacements allows 0", 2, max_replacements=0),
            then(lambda life: life.count_calls("create", 2)),
            ok("reap"),
        ),
        lambda life: setattr(life.api, "statuses", ["ERROR"] * 9),
    ),
)
