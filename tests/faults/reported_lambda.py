# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reported faults of Lambda Cloud, and of controllers that use it."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .reported_world import Life, Reported, bad, maybe, ok, then, wait

SKYPILOT = "https://github.com/skypilot-org/skypilot"
DSTACK = "https://github.com/dstackai/dstack"
DOCUMENT = "Lambda Cloud API 1.8.3, openapi.json"


def error(status: int, code: str, message: str = "refused") -> Answer:
    return Answer(status, {"error": {"code": code, "message": message, "suggestion": "none"}})


UNKNOWN = error(500, "global/unknown", "An unknown error occurred.")
THROTTLED = error(429, "global/too-many-requests", "Rate limit exceeded.")


def show(life: Life, change: t.Callable[[dict[str, t.Any]], dict[str, t.Any]]) -> None:
    """List our machines as ``change`` returns them."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        listed = [item if item["id"] in life.strangers else change(item) for item in answer.data["data"]]
        return Answer(200, {"data": listed})

    life.api.rewrite = rewrite


def end(life: Life) -> None:
    """Let the provider take the first machine away."""
    life.first.gone_at = life.clock.time()


LAMBDA = (
    Reported(
        "listings are throttled after the launch",
        "lambda",
        f"{SKYPILOT}/issues/2261",
        "every listing answers 429 for two minutes once an instance was launched",
        "one order, and the machine is used or ended, never left",
        (ok("rent"), ok("teardown")),
        lambda life: life.api.reply("list", THROTTLED, first=2, last=60, for_s=150),
    ),
    Reported(
        "terminate answers an unknown error and acts",
        "lambda",
        f"{SKYPILOT}/pull/3410",
        "terminate answers 500 global/unknown, and the instance ends",
        "the end is proved by listings",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", UNKNOWN, acts=True, last=8),
    ),
    Reported(
        "terminate fails for a while",
        "lambda",
        f"{SKYPILOT}/issues/4392",
        "terminate answers 500 'try again in 60 seconds' for three minutes and does nothing",
        "it is repeated until it has an effect",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", error(500, "global/unknown", "Try again in 60 seconds."), for_s=500),
    ),
    Reported(
        "the second instance is too many",
        "lambda",
        f"{SKYPILOT}/issues/7084",
        "the second launch answers 400 global/invalid-parameters 'Requested too many instances.'",
        "the first one is ended, and the reason is said",
        (bad("rent", "Requested too many instances", 2), ok("reap")),
        lambda life: life.api.reply(
            "create", error(400, "global/invalid-parameters", "Requested too many instances."), first=2
        ),
    ),
    Reported(
        "an instance without an address",
        "lambda",
        f"{SKYPILOT}/issues/1678",
        "instances are active and have no ip",
        "none is called ready; all are ended",
        (bad("rent", wait_timeout_s=1900), ok("reap")),
        lambda life: show(life, lambda item: {key: item[key] for key in item if key not in ("ip", "private_ip")}),
    ),
    Reported(
        "eight GPUs boot for 24 minutes",
        "lambda",
        f"{DSTACK}/issues/2342",
        "an instance boots for 24 minutes",
        "it is awaited, not replaced",
        (ok("rent", wait_timeout_s=3600), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: setattr(life.api, "boot_s", 1440.0),
    ),
    Reported(
        "offers are forbidden",
        "lambda",
        f"{DSTACK}/issues/982",
        "the instance types answer 403",
        "it is said, in place of 'no offers'",
        (bad("rent", "403"), ok("reap")),
        lambda life: life.api.reply("offers", error(403, "global/account-inactive", "Account is inactive.")),
    ),
    Reported(
        "the account is closed in the middle of a gang",
        "lambda",
        f"{DOCUMENT}: global/account-inactive",
        "the second launch answers 403 global/account-inactive",
        "the first one is ended",
        (bad("rent", "account-inactive", 2), ok("reap")),
        lambda life: life.api.reply("create", error(403, "global/account-inactive", "Inactive."), first=2),
    ),
    Reported(
        "the account is closed for everything",
        "lambda",
        f"{DOCUMENT}: global/account-inactive",
        "every call answers 403 after the first launch, for half an hour; the instance bills on",
        "rent, reap and teardown fail and name it",
        (bad("rent", "403", 2), bad("reap", "403"), bad("reaper"), bad("teardown", "403"), wait(3600), ok("reap")),
        lambda life: [
            life.api.reply("create", error(403, "global/account-inactive", "Inactive."), first=2, for_s=3600),
            life.api.reply("list", error(403, "global/account-inactive", "Inactive."), first=2, for_s=3600),
            life.api.reply("delete", error(403, "global/account-inactive", "Inactive."), for_s=3600),
        ],
    ),
    Reported(
        "no billing address",
        "lambda",
        f"{DOCUMENT}: global/invalid-address",
        "a launch answers 400 global/invalid-address",
        "one call, the reason is said",
        (bad("rent", "invalid-address"), then(lambda life: life.count_calls("create", 1))),
        lambda life: life.api.reply("create", error(400, "global/invalid-address", "Set a billing address.")),
    ),
    Reported(
        "the image of a launch does not exist",
        "lambda",
        f"{DOCUMENT}: global/object-does-not-exist of a launch",
        "a launch answers 404 global/object-does-not-exist",
        "it is a mistake of the request, not a lack of machines: it is not tried for ten minutes",
        (
            bad("rent", "object-does-not-exist", capacity_wait_s=600),
            then(lambda life: life.count_calls("create", 1)),
        ),
        lambda life: life.api.reply("create", error(404, "global/object-does-not-exist", "The image does not exist.")),
    ),
    Reported(
        "the provider behind it is away",
        "lambda",
        f"{DOCUMENT}: provider/internal-unavailable",
        "launches answer 503 provider/internal-unavailable for five minutes, without an effect",
        "each is looked for before the next",
        (maybe("rent", 2), ok("reap")),
        lambda life: life.api.reply("create", error(503, "provider/internal-unavailable"), for_s=300),
    ),
    Reported(
        "a joined instance is preempted",
        "lambda",
        f"{DOCUMENT}: instance status preempted",
        "a joined instance is listed as preempted, then no longer",
        "the next rent replaces it, the other one is kept",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: setattr(life.first, "fields", {**life.first.fields, "end": "preempted"})),
            wait(30),
            then(end),
            ok("rent", 2),
            ok("teardown"),
        ),
    ),
    Reported(
        "a lost instance is replaced by heal",
        "lambda",
        f"{SKYPILOT}/issues/4286",
        "an instance of a run is terminated in the console",
        "heal records the loss and rents one other",
        (ok("rent", 2), wait(600), then(end), wait(120), ok("heal", 2), ok("reap"), ok("teardown")),
    ),
    Reported(
        "the key was added by somebody else",
        "lambda",
        f"{DOCUMENT}: global/duplicate",
        "adding the SSH key answers 409 global/duplicate, because another controller has just added it",
        "that key is used",
        (ok("rent"), ok("teardown")),
        lambda life: life.api.reply("add_key", error(409, "global/duplicate", "Duplicate."), acts=True, last=1),
    ),
    Reported(
        "terminate accepts and forgets",
        "lambda",
        f"{DOCUMENT}: terminated_instances may be empty",
        "terminate answers 200 with an empty list and does nothing, twice",
        "the listing decides: it is repeated",
        (ok("rent"), ok("teardown")),
        lambda life: life.api.reply("delete", Answer(200, {"data": {"terminated_instances": []}}), last=2),
    ),
    Reported(
        "the controller is killed, and the cloud shows the instance later",
        "lambda",
        f"{SKYPILOT}/issues/4431",
        "the controller dies with the launch under way; the instance is listed a minute later",
        "a teardown at once waits for it",
        (maybe("rent", 2), ok("teardown")),
        lambda life: setattr(life.wire, "plan", CallCrash(6, late=True)),
    ),
    Reported(
        "torn down while the launch is processed",
        "lambda",
        f"{SKYPILOT}/pull/7022",
        "rent is killed before the answer of a launch is read",
        "teardown finds it by its name",
        (maybe("rent"), ok("teardown")),
        lambda life: setattr(life.wire, "plan", CallCrash(6, after=True)),
    ),
    Reported(
        "the credentials are taken out of the configuration",
        "lambda",
        f"{DSTACK}/issues/2114",
        "muster_providers has no entry any more while machines run",
        "teardown and reap fail and name them",
        (
            ok("rent", 2),
            then(lambda life: setattr(life, "credentials", False)),
            bad("teardown", "no credentials"),
            bad("reap", "no credentials"),
            then(lambda life: setattr(life, "credentials", True)),
            ok("teardown"),
        ),
    ),
    Reported(
        "a delete of what has ended is an error",
        "lambda",
        f"{DSTACK}/issues/3031",
        "an instance is deleted in the console; terminate answers 400 'cannot terminate a terminated instance'",
        "an absence that lasts, with that answer, is the end of it",
        (
            ok("rent"),
            wait(600),
            then(end),
            then(
                lambda life: life.api.reply(
                    "delete", error(400, "global/invalid-parameters", "Cannot terminate a terminated instance.")
                )
            ),
            ok("teardown"),
        ),
    ),
)
