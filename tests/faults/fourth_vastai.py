# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Vast.ai of a fourth round, drawn from its documents and issues before any rule was looked at."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_vastai import DOCUMENT, error
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

SKYPILOT = "https://github.com/skypilot-org/skypilot"
DSTACK = "https://github.com/dstackai/dstack"
DOCS = "https://docs.vast.ai"
FREQUENT = Answer(429, None, {}, "API requests too frequent")
JSON = dict[str, t.Any]


def listing(life: Life, change: Callable[[JSON], JSON]) -> None:
    """Answer listings as ``change`` returns their data."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        return Answer(200, change(answer.data))

    life.api.rewrite = rewrite


def each(life: Life, change: Callable[[JSON], JSON]) -> None:
    """List our instances as ``change`` returns them."""

    def changed(data: JSON) -> JSON:
        strangers = life.strangers
        return {**data, "instances": [row if str(row["id"]) in strangers else change(row) for row in data["instances"]]}

    listing(life, changed)


def only_others(life: Life) -> None:
    """List others' instances alone, with counts of all and no next page."""

    def changed(data: JSON) -> JSON:
        return {**data, "instances": [row for row in data["instances"] if str(row["id"]) in life.strangers]}

    listing(life, changed)


def pages_break(life: Life) -> None:
    """Have a second page that answers 400 for its token."""
    calls = iter(range(10**6))

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        if next(calls) % 2:
            return Answer(400, {"success": False, "error": "invalid_args", "msg": "invalid after_token"})
        rows = [row for row in answer.data["instances"] if str(row["id"]) in life.strangers]
        return Answer(200, {**answer.data, "instances": rows, "next_token": "eyJ2YWx1ZXMiOiB7ImlkIjogMTIzfX0="})

    life.api.rewrite = rewrite


def linger(life: Life, seconds: float, **values: t.Any) -> None:
    """Let destroyed instances bill for their disk for a while, shown with these values."""
    life.api.ending_s = seconds
    each(life, lambda row: {**row, **values} if life.api.things[str(row["id"])].ended_at is not None else row)


def unlabelled(life: Life, seconds: float) -> None:
    """List instances without their label for a while after their creation."""
    each(
        life,
        lambda row: (
            {**row, "label": None} if life.clock.time() < life.api.things[str(row["id"])].made_at + seconds else row
        ),
    )


def expire(life: Life) -> None:
    """Let the host's offer end: instances are exited, cannot start again, and bill their disk."""
    now = life.clock.time()
    each(
        life,
        lambda row: {
            **row,
            "actual_status": "exited",
            "intended_status": "stopped",
            "cur_state": "stopped",
            "end_date": now,
        },
    )


def renumber(life: Life) -> None:
    """Recycle the first instance: it goes on under another number, with the same label."""
    old = life.first
    made = life.api.make(old.name, **old.fields)
    old.gone_at = life.clock.time()
    made.boot_s = 0.0


def throttle_every_other(life: Life, operation: str, seconds: float) -> None:
    calls, until = iter(range(10**6)), life.clock.time() + seconds

    def before(name: str) -> None:
        if name == operation and life.clock.time() < until and next(calls) % 2 == 0:
            life.api.reply(operation, FREQUENT, last=1)

    life.api.on_call = before


def second_factor(life: Life) -> None:
    """The session of the second factor ends: every call answers 401."""
    for name in ("list", "offers", "create", "delete", "list_keys", "add_key", "attach_key"):
        life.api.reply(name, error(401, "auth_error", "Your 2FA session has expired"), for_s=9e4)


def rent_more_than_asked(life: Life) -> None:
    """Refuse an order that did rent, whose instance is stopped (a bid that is too low)."""
    life.api.refusals = [(400, "invalid_price", True)] * 2
    life.api.statuses = ["stopped", "stopped"]


VASTAI = (
    Reported(
        "the listing is deprecated",
        "vastai",
        f"{SKYPILOT}/issues/10517",
        "listings answer 200 with success false, 'deprecated_endpoint' and no instances, from the first order on",
        "an empty answer without success is no empty account: nothing more is ordered, nothing called gone",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("list", Answer(200, {"success": False, "error": "deprecated_endpoint"}))),
            bad("teardown"),
            bad("reap"),
            bad("rent", count=3),
            then(lambda life: life.count_orders(2)),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "the listing is deprecated before the first order",
        "vastai",
        f"{SKYPILOT}/issues/10517: a storm of launches",
        "listings answer 200 with an empty text",
        "nothing is ordered",
        (bad("rent", count=2), then(lambda life: life.count_orders(0)), CALM, ok("teardown")),
        lambda life: life.api.reply("list", Answer(200, "")),
    ),
    Reported(
        "a listing that counts more than it shows",
        "vastai",
        f"{DOCUMENT}: total_instances, instances_found",
        "listings show others' instances alone, total_instances counts ours, and there is no next page",
        "such a listing proves no absence",
        (
            ok("rent", 2),
            wait(300),
            then(only_others),
            bad("reap"),
            bad("rent", count=2),
            then(lambda life: life.count_orders(2)),
            # By their known ids they are ended, and then the listing is whole.
            ok("teardown"),
        ),
    ),
    Reported(
        "the token of the second page is refused",
        "vastai",
        f"{DOCUMENT}: an invalid token returns a 400 error",
        "every second page answers 400",
        "half a listing proves no absence",
        (ok("rent", 2), then(pages_break), bad("teardown"), bad("rent", count=2), CALM, ok("teardown")),
    ),
    Reported(
        "success without a contract",
        "vastai",
        f"{DOCUMENT}: PUT /asks/{{id}}, new_contract is not required",
        "two orders answer success true without new_contract, and rent",
        "the label finds them",
        (maybe("rent", 2), ok("teardown")),
        lambda life: life.api.reply("create", Answer(200, {"success": True}), acts=True, last=2),
    ),
    Reported(
        "a refused bid that rents a stopped instance",
        "vastai",
        f"{DSTACK}, vastai/api_client.py: destroys what a refusal leaves",
        "two orders answer 400 invalid_price with a new_contract, stopped and billing its disk",
        "both are ended",
        (maybe("rent", 2), ok("teardown")),
        rent_more_than_asked,
    ),
    Reported(
        "no status ever",
        "vastai",
        f"{DOCS}/sdk/python/reference/show-instance: null, instance is being provisioned",
        "actual_status stays null, status_msg says that the container could not be created",
        "it is given back within the wait",
        (bad("rent"), ok("teardown")),
        lambda life: each(
            life, lambda row: {**row, "actual_status": None, "status_msg": "Error: OCI runtime create failed: runc"}
        ),
    ),
    Reported(
        "destroyed, and its disk bills for forty minutes",
        "vastai",
        f"{DOCS}/cli/reference/cleanup-machine: expired instances still pay storage fees",
        "destroy answers success, and the instance is listed as exited and stopped for forty minutes",
        "it is not called gone before",
        (
            ok("rent", 2),
            then(lambda life: linger(life, 2400, actual_status="exited", intended_status="stopped")),
            maybe("teardown"),
            wait(2400),
            ok("teardown"),
        ),
    ),
    Reported(
        "destroyed, and its status is unknown",
        "vastai",
        f"{DSTACK}/pull/4030",
        "destroy answers success, the host is offline, and the instance bills until the host is back in two hours",
        "teardown fails and names it",
        (
            ok("rent", 2),
            then(lambda life: linger(life, 7200, actual_status="offline")),
            bad("teardown"),
            bad("reaper"),
            wait(7200),
            ok("teardown"),
        ),
    ),
    Reported(
        "every second destroy is throttled, as text",
        "vastai",
        f"{DOCS}/api-reference/rate-limits-and-errors",
        "for five minutes every second destroy answers 429 in plain text without Retry-After",
        "all are destroyed",
        (ok("rent", 3), then(lambda life: throttle_every_other(life, "delete", 300)), ok("teardown")),
    ),
    Reported(
        "every second listing is throttled, as text",
        "vastai",
        f"{DOCS}/api-reference/rate-limits-and-errors",
        "every second listing answers 429 in plain text",
        "rent and teardown work",
        (ok("rent", 2), ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: throttle_every_other(life, "list", 1e6),
    ),
    Reported(
        "labels come late",
        "vastai",
        f"{DOCUMENT}: label may be null",
        "the order's answer is lost, and for 100 s instances have no label",
        "no second order while the first may still appear",
        (maybe("rent"), ok("teardown")),
        lambda life: (unlabelled(life, 100.0), life.api.reply("create", None, acts=True, last=1)),
    ),
    Reported(
        "the disk costs more than the offer said",
        "vastai",
        f"{SKYPILOT}, vast/utils.py: possible to charge extra cost on disk",
        "dph_total is listed at three times the cap",
        "it is given back, and rent fails",
        (bad("rent", "cap of 5.00"), ok("teardown")),
        lambda life: each(life, lambda row: {**row, "dph_total": 15.0}),
    ),
    Reported(
        "the host's offer ends within the lease",
        "vastai",
        f"{DOCS}/cli/reference/cleanup-machine; {DOCUMENT}: end_date",
        "an hour after the rent all instances are expired: exited, unable to start, billing their disks",
        "a second rent replaces or names them; teardown ends them",
        (ok("rent", 2), wait(3600), then(expire), maybe("rent", 2), wait(300), maybe("rent", 2), CALM, ok("teardown")),
    ),
    Reported(
        "ids are texts in the listing",
        "vastai",
        f"{SKYPILOT}, vast/utils.py: instance['id'] = str(instance['id'])",
        "ids are numbers in answers and texts in listings",
        "they are the same instances",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: each(life, lambda row: {**row, "id": str(row["id"])}),
    ),
    Reported(
        "an instance goes on under another number",
        "vastai",
        f"{DOCUMENT}: PUT /instances/recycle/{{id}}",
        "the host recycles the first instance: another id, the same label",
        "it is used or ended, and not paid for twice",
        (ok("rent", 2), wait(120), then(renumber), maybe("rent", 2), wait(120), maybe("reap"), ok("teardown")),
    ),
    Reported(
        "an offer that is another host's",
        "vastai",
        f"{DOCUMENT}: PUT /asks/{{id}} 403 'Hosts can only rent their own machines'",
        "the first two orders answer 403",
        "the next offers are tried, within the limit",
        (maybe("rent"), ok("teardown")),
        lambda life: setattr(life.api, "refusals", [(403, "invalid_args", False)] * 2),
    ),
    Reported(
        "the second factor's session ends in mid-lease",
        "vastai",
        "https://github.com/LibreYOLO/libreyolo/pull/505: an expired 2FA session",
        "every call answers 401",
        "teardown, reap and the reaper fail and name the instances",
        (
            ok("rent", 2),
            then(second_factor),
            bad("teardown"),
            bad("reap"),
            bad("reaper"),
            bad("rent", count=2),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "an account whose instances are null",
        "vastai",
        "https://github.com/Max19970/easy-server/issues/125",
        "after the rent listings answer instances null with success true",
        "null is not an empty list",
        (
            ok("rent", 2),
            wait(120),
            then(lambda life: listing(life, lambda data: {**data, "instances": None})),
            bad("teardown"),
            bad("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "destroy answers 200 and no success",
        "vastai",
        f"{DOCUMENT}: DELETE /instances/{{id}} success; {DSTACK}/pull/4030",
        "for ten minutes destroy answers 200 with success false and does nothing",
        "it is repeated until it has an effect",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", Answer(200, {"success": False, "msg": "try again"}), for_s=600),
    ),
)
