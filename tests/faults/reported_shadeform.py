# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reported faults of Shadeform, which rents from other clouds."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .reported_lambda import DSTACK, SKYPILOT
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

DOCUMENT = "Shadeform API 1.0.0, openapi.json"


def error(status: int, message: str, code: str = "ERROR") -> Answer:
    return Answer(status, {"error_code": code, "error": message})


def show(life: Life, **values: t.Any) -> None:
    """List our instances with other values."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        listed = [item if item["id"] in life.strangers else {**item, **values} for item in answer.data["instances"]]
        return Answer(200, {"instances": listed})

    life.api.rewrite = rewrite


SHADEFORM = (
    Reported(
        "the name is taken, by ourselves",
        "shadeform",
        "https://github.com/brevdev/cloud/pull/43",
        "create makes the instance and answers 409 'name already exists'",
        "it is found by its name; nothing is ordered beside it",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: life.api.reply("create", error(409, "an instance of this name exists"), acts=True, last=1),
    ),
    Reported(
        "an instance in error cannot be deleted at once",
        "shadeform",
        f"{DOCUMENT}: status error",
        "instances end in status error; delete answers 400 for two minutes",
        "the delete is repeated until it works, the reason is kept",
        (bad("rent", "error"), ok("reap")),
        lambda life: [
            show(life, status="error"),
            life.api.reply("delete", error(400, "the instance is in an error state"), for_s=120),
        ],
    ),
    Reported(
        "the cloud behind it does not begin",
        "shadeform",
        f"{DOCUMENT}: status pending_provider",
        "instances stay in pending_provider",
        "they are ended at their limit",
        (bad("rent", "not usable", wait_timeout_s=1900), ok("reap")),
        lambda life: show(life, status="pending_provider"),
    ),
    Reported(
        "deleting takes forty minutes",
        "shadeform",
        "https://docs.shadeform.ai/api-reference/instances/instances-delete",
        "a deleted instance is listed as deleting for forty minutes",
        "teardown fails and names it until it is gone",
        (ok("rent"), bad("teardown", "deleting"), wait(2400), ok("reap")),
        lambda life: setattr(life.api, "ending_s", 2400.0),
    ),
    Reported(
        "out of stock",
        "shadeform",
        f"{DOCUMENT}: available",
        "create answers 400 'out of stock'",
        "it is a lack of machines: it fails, nothing is left",
        (bad("rent", "out of stock", 2), ok("reap")),
        lambda life: life.api.reply("create", error(400, "Instance type is out of stock", "OUT_OF_STOCK")),
    ),
    Reported(
        "dearer than offered",
        "shadeform",
        f"{DOCUMENT}: hourly_price",
        "instances are listed at twice the price of the offer",
        "one is made, it is over its cap and ended",
        (
            bad("rent", "4.80 USD per hour", max_price_usd_per_hour=3.0),
            then(lambda life: life.count_orders(1)),
            ok("reap"),
        ),
        lambda life: show(life, hourly_price=480),
    ),
    Reported(
        "the server ends it at its deadline",
        "shadeform",
        f"{DOCUMENT}: auto_delete",
        "the instance is deleted by its date_threshold; a delete answers 404 from then on",
        "the reaper proves it with rc 0",
        (ok("rent", lease_s=3600), wait(3700), ok("reaper"), ok("teardown")),
    ),
    Reported(
        "created, without an id",
        "shadeform",
        f"{DOCUMENT}: CreateResponse",
        "create answers 200 with an id of null, and the instance exists",
        "it is found by its tag",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(200, {"id": None}), acts=True, last=1),
    ),
    Reported(
        "a delete of what was deleted is a conflict",
        "shadeform",
        f"{DSTACK}/pull/2918",
        "instances were ended in the console; a delete answers 409 'already deleted'",
        "an absence that lasts, with that answer, is the end of it",
        (
            ok("rent"),
            wait(600),
            then(lambda life: setattr(life.first, "gone_at", life.clock.time())),
            then(lambda life: life.api.reply("delete", error(409, "already deleted"))),
            ok("teardown"),
        ),
    ),
    Reported(
        "killed between two creates",
        "shadeform",
        "https://github.com/uda-lab/yomotsusaka/issues/124",
        "the controller dies after the first create; nobody runs it again",
        "the reaper ends it as a gang that was never complete",
        (maybe("rent", 2), wait(7200), ok("reaper")),
        lambda life: setattr(life.wire, "plan", CallCrash(9, after=True)),
    ),
    Reported(
        "the reaper's API answers HTML for an hour",
        "shadeform",
        "https://status.e2b.dev/incidents/01KT4JAXRXFXQF557YYQV8EG5P/write-up",
        "from the deadline on every listing answers 502 with a page for an hour",
        "the reaper exits with 1 and names what it could not see, then ends it",
        (
            ok("rent", lease_s=90000),
            wait(600),
            then(lambda life: life.api.reply("list", Answer(502, text="<html>Bad gateway</html>"), for_s=3600)),
            bad("reaper"),
            bad("teardown", "502"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "never as many as asked for",
        "shadeform",
        f"{SKYPILOT}/issues/502",
        "the quota allows one instance: the second create answers 403 'quota exceeded'",
        "the gang is not awaited for ever; the first one is ended",
        (bad("rent", "quota exceeded", 2), ok("reap")),
        lambda life: life.api.reply("create", error(403, "quota exceeded"), first=2),
    ),
    Reported(
        "the first offer is always broken",
        "shadeform",
        f"{DSTACK}/issues/2442",
        "every create answers 200 with a list in place of an object",
        "each is looked for, the number of orders has an end",
        (bad("rent"), then(lambda life: life.count_calls("create", 4)), ok("reap")),
        lambda life: life.api.reply("create", Answer(200, [])),
    ),
    Reported(
        "an extension that fails",
        "shadeform",
        f"{SKYPILOT}/issues/3880",
        "the third machine cannot be had",
        "the two that run are kept",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: life.api.reply("create", error(400, "out of stock"))),
            bad("rent", "out of stock", 3),
            then(lambda life: life.count_orders(2)),
            ok("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
)
