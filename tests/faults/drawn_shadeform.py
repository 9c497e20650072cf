# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Shadeform, and of pools that are healed, drawn independently of the code."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .reported_lambda import DSTACK, SKYPILOT, end
from .reported_runpod import show as show_pods
from .reported_shadeform import DOCUMENT, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait


def relist(life: Life, change: t.Callable[[dict[str, t.Any]], dict[str, t.Any]]) -> None:
    """List our instances as ``change`` returns them."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        listed = answer.data["instances"]
        return Answer(200, {"instances": [item if item["id"] in life.strangers else change(item) for item in listed]})

    life.api.rewrite = rewrite


def keep_ended(life: Life) -> None:
    """List what has ended as deleted, for ever."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        shown = {item["id"] for item in answer.data["instances"]}
        gone = [item for item in life.api.things.values() if item.id not in shown]
        ended = [{**life.api._instance(item), "status": "deleted"} for item in gone]
        return Answer(200, {"instances": [*answer.data["instances"], *ended]})

    life.api.rewrite = rewrite


def answer_first_again(life: Life) -> None:
    def rewrite(operation: str, answer: Answer) -> Answer:
        return Answer(200, {"id": life.first.id}) if operation == "create" and answer.status == 200 else answer

    life.api.rewrite = rewrite


def dearer_offers(life: Life) -> None:
    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "offers" or answer.status != 200:
            return answer
        gpus = [{**item, "price": {"secure": 9.0, "community": 0.0}} for item in answer.data["gpus"]]
        return Answer(200, {"gpus": gpus})

    life.api.rewrite = rewrite


def alternate(life: Life) -> None:
    """Answer by turns from a replica that has never heard of our pods."""
    turns = {"list": itertools.count(), "delete": itertools.count()}

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation not in turns or next(turns[operation]) % 2 == 0:
            return answer
        if operation == "delete":
            return Answer(404, {"title": "Not Found", "status": 404, "detail": "pod not found"})
        return Answer(200, {"pods": [item for item in answer.data["pods"] if item["id"] in life.strangers]})

    life.api.rewrite = rewrite


def relist_vast(life: Life, seconds: float) -> None:
    """List none of our instances for a while."""
    until = life.clock.time() + seconds

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200 or life.clock.time() >= until:
            return answer
        shown = [item for item in answer.data["instances"] if str(item["id"]) in life.strangers]
        return Answer(200, {"success": True, "instances": shown, "next_token": None})

    life.api.rewrite = rewrite


SHADEFORM = (
    Reported(
        "another cloud has it",
        "shadeform",
        f"{DOCUMENT}: Instance.cloud",
        "instances are listed at another cloud than was ordered",
        "they are ended like any other",
        (maybe("rent", 2), ok("reap"), ok("teardown")),
        lambda life: show(life, cloud="lambdalabs", region="us-east-1"),
    ),
    Reported(
        "deleted while it starts",
        "shadeform",
        f"{DOCUMENT}: auto_delete",
        "the first instance is deleted by the server 15 seconds after its order",
        "another one is ordered",
        (ok("rent"), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: [
            setattr(life.api, "boot_s", 40.0),
            life.clock.later(15.0, lambda: end(life) if life.ours else None),
        ],
    ),
    Reported(
        "refused, with a row in error",
        "shadeform",
        f"{DOCUMENT}: Status error",
        "the first create answers 500 and leaves an instance in error",
        "it is ended, and another one ordered",
        (ok("rent"), ok("reap"), ok("teardown")),
        lambda life: [
            setattr(life.api, "statuses", ["error"]),
            life.api.reply("create", error(500, "the cloud failed"), acts=True, last=1),
        ],
    ),
    Reported(
        "an instance without processors",
        "shadeform",
        f"{DOCUMENT}: InstanceConfiguration.num_gpus",
        "instances have no GPU",
        "none is taken",
        (bad("rent", "GPU"), ok("reap")),
        lambda life: relist(life, lambda item: {**item, "configuration": {**item["configuration"], "num_gpus": 0}}),
    ),
    Reported(
        "what has ended stays listed",
        "shadeform",
        f"{DOCUMENT}: Status deleted",
        "deleted instances are listed as deleted for ever",
        "teardown is green, and they are not ended again",
        (ok("rent", 2), ok("teardown"), ok("reap")),
        keep_ended,
    ),
    Reported(
        "deleted, and in error",
        "shadeform",
        f"{SKYPILOT}/issues/4392",
        "delete answers 200, and instances are listed in error for an hour",
        "200 proves nothing: they are named",
        (
            ok("rent", 2),
            then(
                lambda life: [
                    show(life, status="error"),
                    life.api.reply("delete", Answer(200), for_s=3600),
                ]
            ),
            bad("teardown", "lab-h100-1"),
            wait(3600),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "the price doubles once it is active",
        "shadeform",
        f"{DOCUMENT}: hourly_price",
        "an instance costs the offer's price while pending, and twice that when active",
        "it is over its cap and ended",
        (bad("rent", "4.80 USD per hour", max_price_usd_per_hour=3.0), ok("reap")),
        lambda life: relist(life, lambda item: {**item, "hourly_price": 480 if item["status"] == "active" else 240}),
    ),
    Reported(
        "tags are lost",
        "shadeform",
        f"{DOCUMENT}: Instance.tags",
        "instances have no tags",
        "their names tell whose they are",
        (ok("rent", 2), ok("reap"), ok("teardown")),
        lambda life: show(life, tags=None),
    ),
    Reported(
        "the cloud adds to the name",
        "shadeform",
        f"{DSTACK}/issues/3453",
        "the listing adds '-1' to names",
        "the tags tell whose they are",
        (ok("rent", 2), ok("reap"), ok("teardown")),
        lambda life: relist(life, lambda item: {**item, "name": f"{item['name']}-1"}),
    ),
    Reported(
        "one answer for two orders",
        "shadeform",
        "https://github.com/artokun/comfyui-mcp/pull/251",
        "the second create makes its instance and answers with the first one's id",
        "two machines are two machines, and both end",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        answer_first_again,
    ),
    Reported(
        "not known to the cloud yet",
        "shadeform",
        f"{DOCUMENT}: Status pending_provider",
        "the controller is killed; for three minutes delete answers 404 while the instance is listed",
        "it is repeated until it has an effect",
        (maybe("rent"), ok("teardown")),
        lambda life: [
            setattr(life.wire, "plan", CallCrash(6, after=True)),
            life.api.reply("delete", error(404, "instance not found"), for_s=180),
        ],
    ),
)

CHANGES = (
    Reported(
        "heal while listings are throttled",
        "runpod",
        f"{SKYPILOT}/issues/2261",
        "listings answer 429 for ten minutes while heal runs",
        "nothing is replaced or ended",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: life.api.reply("list", Answer(429, {"title": "x", "status": 429}), for_s=600)),
            maybe("heal", 2),
            then(lambda life: life.count_orders(2)),
            wait(600),
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "all offers are dearer when one is lost",
        "runpod",
        f"{DSTACK}/issues/640",
        "a pod is lost, and every offer costs more than the cap",
        "none is ordered, and it is said",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: [end(life), dearer_offers(life)]),
            wait(120),
            bad("heal", "", 2),
            then(lambda life: life.count_orders(2)),
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "two replicas of which one is behind",
        "runpod",
        "https://github.com/peters/horizon/pull/372",
        "every second listing lacks our pods, and every second delete answers 404, for twenty minutes",
        "no two absences that one replica tells are a proof",
        (
            ok("rent", 2),
            wait(600),
            then(alternate),
            ok("rent", 2),
            then(lambda life: life.count_orders(2)),
            maybe("teardown"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "listed half an hour after its order",
        "vastai",
        f"{SKYPILOT}/pull/4443",
        "instances are made at once, unknown to listings and deletes for half an hour, and bill",
        "what appears after its proof is ended by the reaper",
        (maybe("rent"), wait(1800), CALM, ok("reaper"), ok("reap")),
        lambda life: [
            relist_vast(life, 1800),
            life.api.reply("delete", Answer(404, {"success": False, "error": "no_such_instance"}), for_s=1800),
        ],
    ),
    Reported(
        "what was stopped costs nothing, they say",
        "runpod",
        "https://docs.runpod.io/accounts-billing/billing.md: volumes of stopped pods bill",
        "a pod that cannot be ended is EXITED at cost 0 for an hour",
        "what is left is not said to cost 0 USD per hour",
        (
            ok("rent"),
            then(
                lambda life: [
                    show_pods(life, lambda item: {**item, "status": "EXITED", "cost": 0.0}),
                    life.api.reply("delete", Answer(204), for_s=3600),
                ]
            ),
            bad("teardown", "2.99 USD per hour"),
            wait(3600),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "all hosts are maintained at once",
        "runpod",
        "https://docs.runpod.io/pods/maintenance-and-outages.md",
        "both pods are EXITED for ten minutes while heal runs",
        "what heal takes for lost is ended with proof before another one is ordered",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show_pods(life, lambda item: {**item, "status": "EXITED"})),
            maybe("heal", 2),
            CALM,
            ok("reap"),
            ok("teardown"),
        ),
    ),
)
