# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Lambda Cloud drawn independently of the code, from its document and from issues of its users."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .reported_lambda import DOCUMENT, DSTACK, SKYPILOT, end, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait


def revive(life: Life) -> None:
    """Let a machine that was proved gone run again, as if nothing had been."""
    for item in life.api.things.values():
        if item.id not in life.strangers:
            item.ended_at = item.gone_at = item.hidden_at = None


def make_twin(life: Life) -> None:
    """Let a launch make two instances and name both."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "create" or answer.status != 200:
            return answer
        first = life.api.things[answer.data["data"]["instance_ids"][0]]
        twin = life.api.make(first.name, **first.fields)
        return Answer(200, {"data": {"instance_ids": [first.id, twin.id]}})

    life.api.rewrite = rewrite


def list_also(life: Life, add: t.Callable[[list[t.Any]], list[t.Any]]) -> None:
    """List more than there is."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        return Answer(200, {"data": [*answer.data["data"], *add(answer.data["data"])]})

    life.api.rewrite = rewrite


def keep_ended(life: Life) -> None:
    """List what has ended as terminated, for ever."""

    def ended(listed: list[t.Any]) -> list[t.Any]:
        shown = {item["id"] for item in listed}
        gone = [item for item in life.api.things.values() if item.id not in shown]
        return [{**life.api._instance(item), "status": "terminated"} for item in gone]

    list_also(life, ended)


def price(life: Life, cents: int) -> None:
    show(life, lambda item: {**item, "instance_type": {**item["instance_type"], "price_cents_per_hour": cents}})


def all_calls(life: Life, answer: Answer, seconds: float) -> None:
    for name in ("list", "offers", "create", "delete", "list_keys", "leftovers"):
        life.api.reply(name, answer, for_s=seconds)


LAMBDA = (
    Reported(
        "terminate names another instance",
        "lambda",
        f"{DOCUMENT}: InstanceTerminateResponse",
        "terminate answers 200 with the record of another instance and does nothing, twice",
        "the answer proves nothing, it is repeated",
        (ok("rent"), ok("teardown")),
        lambda life: life.api.reply(
            "delete", Answer(200, {"data": {"terminated_instances": [{"id": life.strangers[0]}]}}), last=2
        ),
    ),
    Reported(
        "preempted while it boots",
        "lambda",
        f"{DOCUMENT}: InstanceStatus preempted",
        "the first instance is preempted before it was active",
        "it is ended and replaced once",
        (ok("rent", 2), then(lambda life: life.count_orders(3)), ok("teardown")),
        lambda life: setattr(life.api, "statuses", ["preempted"]),
    ),
    Reported(
        "unhealthy from the start",
        "lambda",
        f"{DOCUMENT}: InstanceStatus unhealthy",
        "every instance is unhealthy",
        "none is called ready, the number of orders has an end",
        (bad("rent", "unhealthy", 2, wait_timeout_s=3600), ok("reap")),
        lambda life: setattr(life.api, "statuses", ["unhealthy"] * 20),
    ),
    Reported(
        "a launch without ids",
        "lambda",
        f"{DOCUMENT}: InstanceLaunchResponse",
        "a launch answers 200 with no id, and the instance exists",
        "it is found by its name, and not ordered again",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(200, {"data": {"instance_ids": []}}), acts=True, last=1),
    ),
    Reported(
        "two instances for one launch",
        "lambda",
        f"{SKYPILOT}/issues/7084",
        "a launch makes two instances of one name and names both",
        "one is used, the other one ended",
        (ok("rent"), wait(600), ok("reap"), ok("teardown")),
        make_twin,
    ),
    Reported(
        "cannot be terminated before it has booted",
        "lambda",
        f"{DOCUMENT}: InstanceActionUnavailableCode vm-has-not-launched",
        "the controller is killed; terminate answers 400 for five minutes",
        "it is repeated until it has an effect",
        (maybe("rent"), ok("teardown")),
        lambda life: [
            setattr(life.wire, "plan", CallCrash(6, after=True)),
            life.api.reply("delete", error(400, "global/invalid-parameters", "vm-has-not-launched"), for_s=300),
        ],
    ),
    Reported(
        "names are cut",
        "lambda",
        f"{DOCUMENT}: Instance.name maxLength",
        "the listing cuts names to twelve characters",
        "the tag tells whose it is",
        (ok("rent", 2), ok("reap"), ok("teardown")),
        lambda life: show(life, lambda item: {**item, "name": item["name"][:12]}),
    ),
    Reported(
        "name and tags are gone",
        "lambda",
        f"{SKYPILOT}/issues/4087",
        "name and tags of a joined instance are removed in the console, for an hour",
        "what is not surely ours is not touched, and is named",
        (
            ok("rent"),
            wait(600),
            then(lambda life: show(life, lambda item: {**item, "name": "", "hostname": "ip-10-19-0-7", "tags": []})),
            bad("reap"),
            bad("teardown", "delete it there if it is yours"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "made in another region",
        "lambda",
        f"{DOCUMENT}: Instance.region",
        "instances are listed in a region that was not ordered",
        "they are ended like any other",
        (maybe("rent", 2), ok("reap"), ok("teardown")),
        lambda life: show(life, lambda item: {**item, "region": {"name": "asia-south-1", "description": "India"}}),
    ),
    Reported(
        "a status that no document has",
        "lambda",
        f"{DOCUMENT}: the enumeration grew with 1.10",
        "instances are listed as 'migrating'",
        "such a one bills and is not ready",
        (bad("rent", "not usable", wait_timeout_s=1900), ok("reap")),
        lambda life: show(life, lambda item: {**item, "status": "migrating"}),
    ),
    Reported(
        "a joined instance migrates",
        "lambda",
        f"{DOCUMENT}: actions.migrate",
        "a joined instance is listed as 'migrating' for ten minutes",
        "no third one is ordered, and none is left",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, lambda item: {**item, "status": "migrating"})),
            maybe("rent", 2, wait_timeout_s=300),
            ok("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "Retry-After is a date of next year",
        "lambda",
        "RFC 9110, 10.2.3",
        "terminate answers 429 with a date a year away, for two hours",
        "the wait has an end, and the instance is named",
        (
            ok("rent"),
            then(
                lambda life: life.api.reply(
                    "delete",
                    dataclasses.replace(
                        error(429, "global/too-many-requests"), headers={"Retry-After": "Fri, 31 Dec 2027 23:59:59 GMT"}
                    ),
                    for_s=7200,
                )
            ),
            bad("teardown", "lab-h100-0"),
            wait(7200),
            ok("teardown"),
        ),
    ),
    Reported(
        "runs again after its proof",
        "lambda",
        f"{SKYPILOT}/issues/779",
        "instances that were proved gone are active again an hour later",
        "the reaper ends them",
        (ok("rent", 2), ok("teardown"), wait(3600), then(revive), ok("reaper"), ok("reap")),
    ),
    Reported(
        "the quota stops an extension",
        "lambda",
        f"{DOCUMENT}: global/quota-exceeded",
        "the third launch answers 400 global/quota-exceeded",
        "the two that run are kept, and the word is said",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: life.api.reply("create", error(400, "global/quota-exceeded", "Quota exceeded."))),
            bad("rent", "uota", 3),
            then(lambda life: life.count_orders(2)),
            ok("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "an account that may only read",
        "lambda",
        f"{DOCUMENT}: global/account-inactive",
        "listings work, and every terminate answers 403 for an hour",
        "the instances are named as billing",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("delete", error(403, "global/account-inactive"), for_s=3600)),
            bad("teardown", "lab-h100-1"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "a file system in another region",
        "lambda",
        f"{DOCUMENT}: instance-operations/launch/file-system-in-wrong-region",
        "every launch answers 400 with that code",
        "a mistake of the request: one call",
        (
            bad("rent", "file-system-in-wrong-region", capacity_wait_s=600),
            then(lambda life: life.count_calls("create", 1)),
        ),
        lambda life: life.api.reply("create", error(400, "instance-operations/launch/file-system-in-wrong-region")),
    ),
    Reported(
        "each instance is listed twice",
        "lambda",
        f"{SKYPILOT}/issues/656",
        "the listing has every instance twice",
        "one id is one machine",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("reap"), ok("teardown")),
        lambda life: list_also(life, list),
    ),
    Reported(
        "an error in a 200",
        "lambda",
        f"{DSTACK}/issues/982",
        "listings answer 200 with an error in the body for an hour",
        "that proves no absence",
        (
            ok("rent"),
            then(
                lambda life: life.api.reply(
                    "list", Answer(200, {"error": {"code": "global/internal-error", "message": "x"}}), for_s=3600
                )
            ),
            bad("teardown", "lab-h100-0"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "what has ended stays listed",
        "lambda",
        f"{DOCUMENT}: InstanceStatus terminated",
        "terminated instances are listed as terminated for ever",
        "teardown is green, and they are not ended again",
        (ok("rent", 2), ok("teardown"), ok("reap")),
        keep_ended,
    ),
    Reported(
        "a price of zero",
        "lambda",
        f"{DOCUMENT}: InstanceType.price_cents_per_hour",
        "instances are listed at 0 cents",
        "the price of the offer counts against the caps",
        (
            ok("rent"),
            bad("rent", "price caps", 3, max_total_usd_per_hour=6.0),
            then(lambda life: life.count_orders(1)),
            ok("reap"),
            ok("teardown"),
        ),
        lambda life: price(life, 0),
    ),
    Reported(
        "the price doubles in mid-run",
        "lambda",
        f"{DOCUMENT}: InstanceType.price_cents_per_hour",
        "two joined instances cost twice as much from an hour on",
        "a third one is not ordered above the total cap, and the true price is said",
        (
            ok("rent", 2),
            wait(3600),
            then(lambda life: price(life, 598)),
            bad("rent", "", 3, max_price_usd_per_hour=6.5, max_total_usd_per_hour=13.0),
            then(lambda life: life.count_orders(2)),
            ok("reap", says="11.96"),
            ok("teardown"),
        ),
    ),
    Reported(
        "two that are too dear together",
        "lambda",
        f"{SKYPILOT}/issues/6051",
        "both instances are listed at twice the price of the offer, each below its own cap",
        "the total cap is held against what is billed: all are ended, and no other one is ordered",
        (
            bad("rent", "11.96 USD per hour", 2, max_price_usd_per_hour=6.5, max_total_usd_per_hour=9.0),
            then(lambda life: life.count_orders(2)),
            ok("reap"),
        ),
        lambda life: price(life, 598),
    ),
    Reported(
        "the API has moved",
        "lambda",
        "https://docs.lambda.ai: cloud.lambdalabs.com became cloud.lambda.ai",
        "every call answers 301 to another host for two hours",
        "the credential goes nowhere else, and the instance is named",
        (
            ok("rent"),
            then(
                lambda life: all_calls(
                    life, Answer(301, None, {"Location": "https://cloud.example.com/api/v1/instances"}), 7200
                )
            ),
            bad("teardown", "lab-h100-0"),
            bad("reaper"),
            wait(7200),
            ok("teardown"),
        ),
    ),
    Reported(
        "an instance that dies in its first minute",
        "lambda",
        f"{SKYPILOT}/issues/7321",
        "each instance is gone 30 seconds after its launch",
        "orders have an end, it fails, and nothing is left",
        (bad("rent", wait_timeout_s=3600), ok("reap")),
        lambda life: [
            setattr(life.api, "boot_s", 600.0),
            [life.clock.later(60.0 * number, lambda: end(life) if life.ours else None) for number in range(1, 60)],
        ],
    ),
)
