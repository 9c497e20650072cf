# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Lambda Cloud of a third round, drawn from issues and its document before the rules were looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .drawn_lambda import all_calls, keep_ended
from .reported_lambda import DOCUMENT, DSTACK, SKYPILOT, THROTTLED, end, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

SHARED = "lab-h100-0-0badcafe"


def space_launches(life: Life, seconds: float) -> None:
    """Throttle a launch that comes too soon after the one before."""
    allowed_from = [0.0]

    def before(operation: str) -> None:
        if operation != "create":
            return
        if life.clock.time() < allowed_from[0]:
            life.api.reply("create", THROTTLED, last=1)
        else:
            allowed_from[0] = life.clock.time() + seconds

    life.api.on_call = before


def end_only(life: Life, suffix: str) -> None:
    """Accept every terminate, and carry out those of names with that part alone."""
    whole = life.api.end
    life.api.end = lambda thing: whole(thing) if suffix in thing.name else None


def end_all(life: Life) -> None:
    del life.api.end


def fall_back(life: Life, seconds: float) -> None:
    """List what was to end as terminating for a while, then as active again."""
    accepted: dict[str, float] = {}
    life.api.end = lambda thing: accepted.setdefault(thing.id, life.clock.time())

    def change(item: dict[str, t.Any]) -> dict[str, t.Any]:
        began = accepted.get(item["id"])
        ends = began is not None and life.clock.time() < began + seconds
        return {**item, "status": "terminating"} if ends else item

    show(life, change)


def answer_old_id(life: Life) -> None:
    """Answer a launch with the id of an instance that has ended."""
    old = next(key for key, item in life.api.things.items() if item.ended_at is not None)

    def rewrite(operation: str, answer: Answer) -> Answer:
        return Answer(200, {"data": {"instance_ids": [old]}}) if operation == "create" else answer

    life.api.rewrite = rewrite


def share_account(life: Life) -> None:
    """Let another controller with the same cluster's name have an instance in the account."""
    made = life.api.make(SHARED, ssh_key_names=["theirs"], tags=[{"key": "muster", "value": "theirs"}], end="active")
    life.strangers.append(made.id)


def leave_account(life: Life) -> None:
    other = next(item for item in life.api.things.values() if item.name == SHARED)
    life.problems += [] if other.exists(life.clock.time()) else ["the other controller's instance is gone"]
    life.strangers.remove(other.id)
    other.gone_at = life.clock.time()


def lag_behind(life: Life, seconds: float) -> None:
    """List instances a while after their launch only; a terminate of them is unknown before."""
    whole, made = life.api.make, life.api.find

    def make(name: str, **fields: t.Any) -> t.Any:
        thing = whole(name, **fields)
        thing.visible_from += seconds
        return thing

    def find(key: str) -> t.Any:
        thing = made(key)
        return thing if thing is not None and thing.visible_from <= life.clock.time() else None

    life.api.make, life.api.find = make, find


def repeat_launch(life: Life, after_s: float) -> None:
    """Let a gateway repeat each launch once."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation == "create" and answer.status == 200:
            first = life.api.things[answer.data["data"]["instance_ids"][0]]
            life.clock.later(after_s, lambda: life.api.make(first.name, **first.fields))
        return answer

    life.api.rewrite = rewrite


def lose_key(life: Life) -> None:
    """Delete the SSH key in the console once the first launch was made."""

    def before(operation: str) -> None:
        if operation == "create" and life.api.launch_bodies:
            life.api.on_call = lambda _operation: None
            life.api.keys.clear()

    life.api.on_call = before


def offer_at(life: Life, cents: float) -> None:
    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "offers" or answer.status != 200:
            return answer
        (name, entry), *_ = answer.data["data"].items()
        kind = {**entry["instance_type"], "price_cents_per_hour": cents}
        return Answer(200, {"data": {name: {**entry, "instance_type": kind}}})

    life.api.rewrite = rewrite


LAMBDA = (
    Reported(
        "one launch in twelve seconds",
        "lambda",
        f"{SKYPILOT}/pull/1557",
        "a launch that comes within twelve seconds of the last one answers 429",
        "three instances are three orders",
        (ok("rent", 3), then(lambda life: life.count_orders(3)), ok("teardown")),
        lambda life: space_launches(life, 12),
    ),
    Reported(
        "terminate ends the head alone",
        "lambda",
        f"{SKYPILOT}/issues/508",
        "terminate answers 200 for both, and ends the first one only, for an hour",
        "the other one is named",
        (
            ok("rent", 2),
            then(lambda life: end_only(life, "-0-")),
            bad("teardown", "lab-h100-1"),
            wait(3600),
            then(end_all),
            ok("teardown"),
        ),
    ),
    Reported(
        "the key expires in the night",
        "lambda",
        f"{SKYPILOT}/issues/4433",
        "every call answers 401 from the first hour to the fourth; the lease ends in the third",
        "rent, reap, teardown and the reaper are red, and the instances are named",
        (
            ok("rent", 2, lease_s=9000),
            wait(3600),
            then(lambda life: all_calls(life, error(401, "global/invalid-api-key"), 10800)),
            bad("rent", "", 2),
            bad("reap", "lab-h100-0"),
            wait(6000),
            bad("reaper", "lab-h100-1"),
            bad("teardown", "lab-h100-1"),
            wait(4800),
            ok("reaper"),
        ),
    ),
    Reported(
        "lost, and listed as terminated for ever",
        "lambda",
        "https://github.com/artilleryio/chaos-lambda/issues/23",
        "an instance of a run is terminated in the console and stays listed; another terminate of it answers 400",
        "heal replaces it once",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: [end(life), keep_ended(life)]),
            wait(120),
            ok("heal", 2),
            then(lambda life: life.count_orders(3)),
            ok("teardown"),
        ),
    ),
    Reported(
        "terminating, and active again",
        "lambda",
        f"{DSTACK}/issues/1551",
        "terminated instances are terminating for two minutes and active again, for an hour",
        "terminating is no proof",
        (
            ok("rent"),
            then(lambda life: fall_back(life, 120)),
            bad("teardown", "lab-h100-0"),
            wait(3600),
            then(end_all),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "a launch answers with an old id",
        "lambda",
        "https://github.com/ray-project/ray/issues/51861",
        "after a teardown a launch answers with the id of the instance that has ended",
        "the new one is found by its name, and ended",
        (ok("rent"), ok("teardown"), then(answer_old_id), maybe("rent"), ok("reap"), ok("teardown")),
    ),
    Reported(
        "two controllers, one name and one account",
        "lambda",
        f"{SKYPILOT}/issues/1256",
        "another controller has an instance of the same cluster's name in the account",
        "it is never taken, and never ended without consent",
        (
            then(share_account),
            maybe("rent", 2),
            maybe("reap"),
            maybe("teardown"),
            then(leave_account),
            ok("teardown"),
        ),
    ),
    Reported(
        "no private address at first",
        "lambda",
        "https://github.com/aws/aws-parallelcluster-node/pull/692",
        "instances are active without a private address",
        "they are used, and not replaced",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: show(life, lambda item: {key: value for key, value in item.items() if key != "private_ip"}),
    ),
    Reported(
        "listed four minutes late",
        "lambda",
        "https://github.com/gardener/machine-controller-manager-provider-aws/pull/58",
        "an instance is unknown to listings and terminate for four minutes after its launch",
        "none is made twice and forgotten",
        (maybe("rent", 2), ok("reap"), ok("teardown")),
        lambda life: lag_behind(life, 240),
    ),
    Reported(
        "a gateway repeats the launch",
        "lambda",
        f"{SKYPILOT}/issues/656",
        "each launch is repeated a minute and a half later, by nobody's order",
        "the second one is ended with the first",
        (ok("rent", 2), wait(120), maybe("reap"), maybe("rent", 2), ok("teardown")),
        lambda life: repeat_launch(life, 90),
    ),
    Reported(
        "another name for the type",
        "lambda",
        f"{DOCUMENT}: InstanceType.name",
        "instances are listed with another name of their type, and the same GPUs",
        "they are used",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: show(
            life, lambda item: {**item, "instance_type": {**item["instance_type"], "name": "gpu_1x_h100_sxm_v2"}}
        ),
    ),
    Reported(
        "a cold reboot while heal runs",
        "lambda",
        f"{DOCUMENT}: actions.cold_reboot",
        "both joined instances are booting for twenty minutes",
        "nothing is ended without a replacement being counted",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, lambda item: {**item, "status": "booting"})),
            maybe("heal", 2),
            wait(1200),
            CALM,
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "the SSH key goes between two launches",
        "lambda",
        f"{DOCUMENT}: DELETE /api/v1/ssh-keys",
        "the account's key is deleted in the console after the first launch; the second one answers 400",
        "all or none, and nothing is left",
        (maybe("rent", 2), ok("reap"), ok("teardown")),
        lose_key,
    ),
    Reported(
        "offers in dollars, bills in cents",
        "lambda",
        f"{DOCUMENT}: InstanceType.price_cents_per_hour",
        "the types cost 3 cents, and instances 299",
        "the bill counts: what costs more than the cap is ended",
        (bad("rent", "2.99", max_price_usd_per_hour=1.0), ok("reap")),
        lambda life: offer_at(life, 3),
    ),
    Reported(
        "no capacity, and an instance all the same",
        "lambda",
        f"{DOCUMENT}: insufficient-capacity; {DSTACK}/issues/3453",
        "every launch answers 400 insufficient-capacity and makes its instance",
        "each one is found and ended, orders have an end",
        (bad("rent", "", 2, wait_timeout_s=900), ok("reap")),
        lambda life: life.api.reply(
            "create", error(400, "instance-operations/launch/insufficient-capacity"), acts=True
        ),
    ),
    Reported(
        "killed in a teardown, and rented again",
        "lambda",
        f"{SKYPILOT}/issues/7205",
        "the controller dies after its first terminate; the pool is rented again at once",
        "what is terminating is not taken for a node",
        (
            ok("rent", 2),
            then(lambda life: setattr(life.wire, "plan", CallCrash(life.wire.count + 2, after=True))),
            maybe("teardown"),
            ok("rent", 2),
            ok("reap"),
            ok("teardown"),
        ),
    ),
)
