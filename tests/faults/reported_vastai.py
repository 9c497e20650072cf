# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reported faults of Vast.ai, whose machines belong to many hosts."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_lambda import DSTACK, SKYPILOT, end
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

DOCUMENT = "Vast.ai API, openapi.json of 2026-08-07"
CLIENTS = "https://github.com/vast-ai/vast-cli, 5567983"


def error(status: int, code: str, message: str = "refused", **more: t.Any) -> Answer:
    return Answer(status, {"success": False, "error": code, "msg": message, **more})


def show(life: Life, **values: t.Any) -> None:
    """List our instances with other values."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        listed = [
            item if str(item["id"]) in life.strangers else {**item, **values} for item in answer.data["instances"]
        ]
        return Answer(200, {**answer.data, "instances": listed})

    life.api.rewrite = rewrite


def stop_all(life: Life) -> None:
    """Stop every instance, as at a balance of zero; the disks bill on."""
    show(life, **dict.fromkeys(("actual_status", "cur_state", "intended_status", "next_state"), "stopped"))


def never_answers(life: Life) -> None:
    life.prober.reports = [ProbeReport("not_yet", problems=("ssh: Connection refused",))] * 2000


VASTAI = (
    Reported(
        "one offer sold twice",
        "vastai",
        f"{SKYPILOT}/pull/9117",
        "the host has sold its ports twice: the instance stays in 'created' with an error of the container runtime",
        "it is ended, and its host is avoided",
        (bad("rent", "", 2), ok("reap")),
        lambda life: show(
            life, actual_status="created", status_msg="OCI runtime create failed: port is already allocated"
        ),
    ),
    Reported(
        "always starting",
        "vastai",
        f"{DSTACK}/issues/921",
        "actual_status stays null",
        "it is ended at its limit",
        (bad("rent", "not usable", wait_timeout_s=1900), ok("reap")),
        lambda life: show(life, actual_status=None),
    ),
    Reported(
        "destroy says success: false",
        "vastai",
        f"{DSTACK}/pull/4030",
        "destroy answers 200 with success false, and does nothing, twice",
        "it is repeated",
        (ok("rent"), ok("teardown")),
        lambda life: life.api.reply("delete", error(200, "server_error", "try again"), last=2),
    ),
    Reported(
        "destroy always says success: false",
        "vastai",
        f"{DSTACK}/pull/4030",
        "destroy answers 200 with success false and a reason, and does nothing",
        "the instance is named as billing, with the provider's reason",
        (
            ok("rent"),
            then(lambda life: life.api.reply("delete", error(200, "instance_locked", "the host has locked it"))),
            bad("teardown", "the host has locked it"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "a gateway's time-out of a destroy that acts",
        "vastai",
        f"{DSTACK}/pull/775",
        "destroy answers 504 and acts",
        "the end is proved by listings",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", Answer(504, text="Gateway Time-out"), acts=True, last=8),
    ),
    Reported(
        "every offer is gone when it is taken",
        "vastai",
        f"{DOCUMENT}: 410 Offer no longer available",
        "every order answers 410 no_such_ask",
        "it fails, and nothing is left",
        (bad("rent", "no_such_ask", 2), ok("reap")),
        lambda life: life.api.reply("create", error(410, "no_such_ask", "the offer is gone")),
    ),
    Reported(
        "a listing of null",
        "vastai",
        "https://github.com/vast-ai/vast-cli/pull/405",
        "the listing answers instances: null for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(lambda life: life.api.reply("list", Answer(200, {"success": True, "instances": None}), for_s=1200)),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "the balance is zero",
        "vastai",
        "https://vast.ai/docs/console/billing",
        "all instances are stopped, and their disks bill on",
        "rent does not call them ready; teardown ends them",
        (ok("rent", 2), wait(600), then(stop_all), bad("rent", "", 2), ok("teardown")),
    ),
    Reported(
        "throttled in plain text",
        "vastai",
        f"{CLIENTS}: 429 in plain text",
        "orders answer 429 'API requests too frequent' as text three times",
        "they are sent again later, one machine each",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(429, text="API requests too frequent"), last=3),
    ),
    Reported(
        "the search quota of the day",
        "vastai",
        f"{CLIENTS}: search_quota_exceeded",
        "searches answer 429 search_quota_exceeded",
        "rent fails with that word after one call",
        (bad("rent", "search_quota_exceeded"), then(lambda life: life.count_calls("offers", 1))),
        lambda life: life.api.reply("offers", Answer(429, {"error": "search_quota_exceeded"})),
    ),
    Reported(
        "a bad key is a 404",
        "vastai",
        f"{DOCUMENT}: search answers 404 for a missing or bad key",
        "searches answer 404",
        "rent fails and says 404; it does not say that there are no offers",
        (bad("rent", "404"), ok("reap")),
        lambda life: life.api.reply("offers", error(404, "unauthorized", "bad key")),
    ),
    Reported(
        "a host is offline for a moment",
        "vastai",
        "https://vast.ai/docs/overview/faq",
        "a joined instance is listed as offline for 30 seconds",
        "nothing is replaced",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: [show(life, actual_status="offline"), life.clock.later(30.0, life.api.calm)]),
            ok("rent", 2),
            then(lambda life: life.count_orders(2)),
            ok("teardown"),
        ),
    ),
    Reported(
        "SSH never answers",
        "vastai",
        f"{SKYPILOT}/issues/6449",
        "instances run, and their SSH refuses connections",
        "none is called ready; all are ended",
        (bad("rent", "not usable", wait_timeout_s=1900), ok("reap")),
        never_answers,
    ),
    Reported(
        "a virtual machine without a key",
        "vastai",
        f"{CLIENTS}: no_ssh_key_for_vm",
        "orders answer 400 no_ssh_key_for_vm",
        "a mistake of the request: the code is said",
        (bad("rent", "no_ssh_key_for_vm"), ok("reap")),
        lambda life: life.api.reply("create", error(400, "no_ssh_key_for_vm")),
    ),
    Reported(
        "the account is blacklisted",
        "vastai",
        f"{DOCUMENT}: 403 User is blacklisted",
        "the second order answers 403",
        "the first instance is ended, the reason said",
        (bad("rent", "blacklisted", 2), ok("reap")),
        lambda life: life.api.reply("create", error(403, "blacklisted", "User is blacklisted"), first=2),
    ),
    Reported(
        "refused, and an instance all the same",
        "vastai",
        f"{DSTACK}/issues/2809",
        "an order answers 400 with new_contract, and the instance exists",
        "it is ended, and another one ordered",
        (ok("rent"), ok("teardown")),
        lambda life: life.api.refusals.append((400, "invalid_args", True)),
    ),
    Reported(
        "the host's contract ends",
        "vastai",
        "https://vast.ai/docs/renting/instance-details",
        "a joined instance has reached its host's maximum duration: it is exited, then no longer listed",
        "heal replaces it",
        (ok("rent", 2), wait(600), then(end), wait(120), ok("heal", 2), ok("reap"), maybe("teardown")),
    ),
)
