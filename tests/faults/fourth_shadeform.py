# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Shadeform of a fourth round, drawn from its documents and issues before any rule was looked at."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_shadeform import DOCUMENT, error
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

SKYPILOT = "https://github.com/skypilot-org/skypilot"
DSTACK = "https://github.com/dstackai/dstack"
DOCS = "https://docs.shadeform.ai/api-reference/instances"
JSON = dict[str, t.Any]


def each(life: Life, change: Callable[[JSON], JSON | None]) -> None:
    """List our instances as ``change`` returns them, without those for which it returns None."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        rows = [row if row["id"] in life.strangers else change(row) for row in answer.data["instances"]]
        return Answer(200, {"instances": [row for row in rows if row is not None]})

    life.api.rewrite = rewrite


def deleting_then(life: Life, seconds: float, status: str) -> None:
    """Bill deleted instances for a while; they are listed as deleting for half of it, then with a status."""
    life.api.ending_s = seconds

    def change(row: JSON) -> JSON:
        ended = life.api.things[row["id"]].ended_at
        return {**row, "status": status} if ended is not None and life.clock.time() > ended + seconds / 2 else row

    each(life, change)


def hide_ending(life: Life, seconds: float) -> None:
    """Bill deleted instances for a while and list none of them."""
    life.api.ending_s = seconds
    each(life, lambda row: None if life.api.things[row["id"]].ended_at is not None else row)


def keep_records(life: Life) -> None:
    """List deleted instances as deleted for half an hour."""
    whole = life.api.end

    def end(thing: t.Any) -> None:
        whole(thing)
        thing.hidden_at = life.clock.time() + 1800

    life.api.end = end

    def change(row: JSON) -> JSON:
        gone = life.api.things[row["id"]].gone_at
        return {**row, "status": "deleted"} if gone is not None and life.clock.time() >= gone else row

    each(life, change)


def fail_at_once(life: Life) -> None:
    """Let every instance be in error from the start: the cloud is out of stock."""
    each(life, lambda row: {**row, "status": "error", "status_details": "out_of_stock", "ip": ""})


def not_while_pending(life: Life) -> None:
    """Never leave pending_provider, and refuse to delete in it for two hours."""
    until = life.clock.time() + 7200
    each(life, lambda row: {**row, "status": "pending_provider", "ip": ""} if life.clock.time() < until else row)
    life.api.reply("delete", error(409, "instance is pending at the provider", "INSTANCE_PENDING"), for_s=7200)


def rename(life: Life) -> None:
    """Somebody renames the instances and takes their tags away."""
    each(life, lambda row: {**row, "name": "alice-dev", "tags": []})


def sync_lost(life: Life, seconds: float) -> None:
    """List no instance of one cloud while its account is out of step."""
    until = life.clock.time() + seconds
    each(life, lambda row: None if life.clock.time() < until else row)


def end_early(life: Life) -> None:
    """The server's own deadline ends everything an hour early."""
    for thing in life.ours:
        thing.gone_at = life.clock.time()


SHADEFORM = (
    Reported(
        "deleting, then in error",
        "shadeform",
        f"{DOCUMENT}: InstanceStatus error, deleting",
        "deleted instances bill for an hour, half of it as deleting, then as error",
        "they are not called gone, and teardown goes on",
        (
            ok("rent", 2),
            then(lambda life: deleting_then(life, 3600, "error")),
            maybe("teardown"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "deleting, then active again",
        "shadeform",
        f"{SKYPILOT}/issues/4392: the cloud behind it fails to terminate",
        "deleted instances bill for two hours, for the second of them as active",
        "they are deleted again and not called gone",
        (
            ok("rent", 2),
            then(lambda life: deleting_then(life, 7200, "active")),
            bad("teardown"),
            bad("reaper"),
            wait(7200),
            ok("teardown"),
        ),
    ),
    Reported(
        "what is being deleted is not listed",
        "shadeform",
        f"{DOCS}/instances-delete: moved to deleting",
        "deleted instances are no longer listed and bill for 40 s",
        "nothing is called gone while it bills",
        (ok("rent", 2), ok("teardown")),
        lambda life: hide_ending(life, 40.0),
    ),
    Reported(
        "a delete is refused while the cloud behind it provisions",
        "shadeform",
        f"{DSTACK}/pull/2132: not currently active, you cannot destroy it",
        "instances stay pending_provider, and deletes answer 409 for two hours",
        "rent fails and names them",
        (bad("rent", count=2), bad("reaper"), wait(7200), ok("teardown")),
        not_while_pending,
    ),
    Reported(
        "the cloud behind it has them locked",
        "shadeform",
        f"{DSTACK}/pull/2132: Server is currently locked",
        "for ten minutes deletes answer 500 'Server is currently locked'",
        "it is repeated",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", error(500, "Unable to remove VM: Server is currently locked"), for_s=600),
    ),
    Reported(
        "records of deleted instances",
        "shadeform",
        f"{DOCUMENT}: InstanceStatus deleted, deleted_at",
        "deleted instances are listed as deleted for half an hour",
        "they bill nothing: teardown and reap are calm, a new rent works",
        (ok("rent", 2), ok("teardown"), ok("reap"), ok("rent", 2), ok("teardown")),
        keep_records,
    ),
    Reported(
        "out of stock after the order",
        "shadeform",
        f"{DOCUMENT}: status_details; {SKYPILOT}, shadeform/instance.py",
        "every instance is in error from its first listing",
        "orders stay within their limit, all are ended, the reason is said",
        (bad("rent", count=2), ok("teardown")),
        fail_at_once,
    ),
    Reported(
        "create answers without an id",
        "shadeform",
        f"{DOCUMENT}: CreateResponse",
        "two creates answer 200 with an empty object, and take effect",
        "the name finds them",
        (maybe("rent", 2), ok("teardown")),
        lambda life: life.api.reply("create", Answer(200, {}), acts=True, last=2),
    ),
    Reported(
        "create answers an empty body",
        "shadeform",
        f"{SKYPILOT}, shadeform/shadeform_utils.py",
        "the first create answers 200 without a body, and takes effect",
        "the name finds it",
        (maybe("rent"), ok("teardown")),
        lambda life: life.api.reply("create", Answer(200), acts=True, last=1),
    ),
    Reported(
        "renamed, and no tags",
        "shadeform",
        f"{DOCUMENT}: POST /instances/{{id}}/update",
        "somebody renames the instances and takes their tags away",
        "nothing is touched by an id alone, and nothing is ordered beside what may be ours",
        (
            ok("rent", 2),
            wait(300),
            then(rename),
            bad("rent", "listed as alice-dev", count=2),
            then(lambda life: life.count_orders(2)),
            bad("teardown", "not touched"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "renamed after an order without an answer",
        "shadeform",
        f"{DOCUMENT}: POST /instances/{{id}}/update; {DSTACK}/issues/3453",
        "the create's answer is lost, and somebody renames the instance and takes its tags away within the first minute",
        "what nobody can recognise is not touched, and the order that may bill is named, not called gone",
        (maybe("rent"), wait(7200), maybe("teardown"), CALM, ok("teardown")),
        lambda life: (rename(life), life.api.reply("create", None, acts=True, last=1)),
    ),
    Reported(
        "one cloud's account is out of step",
        "shadeform",
        f"{DOCS}/instances: one listing over many clouds",
        "for half an hour no instance of ours is listed",
        "nothing is given up or ordered for it in the first minute, nothing is called gone for it",
        (
            ok("rent", 2),
            wait(300),
            then(lambda life: sync_lost(life, 30)),
            ok("rent", 2),
            then(lambda life: life.count_orders(2)),
            ok("teardown"),
        ),
    ),
    Reported(
        "the server's deadline comes early",
        "shadeform",
        f"{DOCUMENT}: AutoDelete.date_threshold",
        "an hour after the rent the server has ended all",
        "reap is calm, the second rent orders anew, teardown is proved",
        (ok("rent", 2), wait(3600), then(end_early), maybe("reap"), ok("rent", 2), ok("teardown")),
    ),
    Reported(
        "the deadline is refused",
        "shadeform",
        f"{DOCUMENT}: AutoDelete, RFC 3339",
        "creates answer 400 'invalid date_threshold'",
        "rent fails after a few calls, nothing is made",
        (
            bad("rent"),
            then(lambda life: life.count_calls("create", 4)),
            then(lambda life: life.count_orders(0)),
            ok("teardown"),
        ),
        lambda life: life.api.reply("create", error(400, "invalid date_threshold")),
    ),
    Reported(
        "a price of zero",
        "shadeform",
        f"{DOCUMENT}: hourly_price",
        "instances are listed at a price of 0",
        "what runs is reported, and not as free of charge beyond what the offer said",
        (ok("rent", 2), ok("teardown")),
        lambda life: each(life, lambda row: {**row, "hourly_price": 0}),
    ),
    Reported(
        "deletes are throttled for long",
        "shadeform",
        f"{SKYPILOT}, shadeform/instance.py: failed to terminate is a warning",
        "deletes answer 429 without Retry-After for two hours",
        "teardown ends in its time, fails and names the instances",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("delete", error(429, "rate limit"), for_s=7200)),
            bad("teardown"),
            bad("reaper"),
            wait(7200),
            ok("teardown"),
        ),
    ),
    Reported(
        "an instance whose price rises in mid-lease",
        "shadeform",
        f"{DOCUMENT}: hourly_price is the current price",
        "a day's instance is listed at four times its price after an hour",
        "the second rent keeps it and names it; nothing new is ordered beyond the cap",
        (
            ok("rent", 2),
            wait(3600),
            then(lambda life: each(life, lambda row: {**row, "hourly_price": 960})),
            maybe("rent", 2, max_total_usd_per_hour=6.0),
            then(lambda life: life.count_orders(2)),
            CALM,
            ok("teardown"),
        ),
    ),
)
