# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Shadeform of a third round, drawn from issues and its document before the rules were looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .reported_lambda import DSTACK, SKYPILOT, end
from .reported_shadeform import DOCUMENT, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait


def change(life: Life, how: t.Callable[[list[dict[str, t.Any]]], list[dict[str, t.Any]]]) -> None:
    """Give our part of the listing otherwise."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        listed = answer.data["instances"]
        ours = [item for item in listed if item["id"] not in life.strangers]
        return Answer(200, {"instances": [item for item in listed if item["id"] in life.strangers] + how(ours)})

    life.api.rewrite = rewrite


def forget_deadlines(life: Life) -> None:
    """Keep no deadline, as a cloud that ignores it."""
    whole = life.api.make
    life.api.make = lambda name, **fields: whole(name, **{**fields, "auto_delete": None})


def early_deadlines(life: Life, hours: float) -> None:
    """Keep every deadline in another time zone."""
    whole = life.api.make

    def make(name: str, **fields: t.Any) -> t.Any:
        limit = fields.get("auto_delete")
        return whole(name, **{**fields, "auto_delete": limit - 3600 * hours if limit else None})

    life.api.make = make


def ghost(life: Life) -> None:
    """List every instance a second time under another id, which delete does not know."""

    ghosts = [{**life.api._instance(item), "id": item.id.replace("d290f1ee", "00000000")} for item in life.ours]
    change(life, lambda ours: [*ours, *ghosts])


def queue_deletes(life: Life, seconds: float) -> None:
    """Accept a delete, and list the instance as active until it is carried out."""
    life.api.ending_s = seconds
    show(life, status="active")


def reprice_offers(life: Life, cents: t.Any) -> None:
    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "offers" or answer.status != 200:
            return answer
        types = [{**item, "hourly_price": cents} for item in answer.data["instance_types"]]
        return Answer(200, {"instance_types": types})

    life.api.rewrite = rewrite


def take_away(life: Life) -> None:
    types = life.api._types(None).data["instance_types"]
    gone = [{**item, "availability": [{**item["availability"][0], "available": False}]} for item in types]
    life.api.reply("offers", Answer(200, {"instance_types": gone}))


def fail_and_stay(life: Life, seconds: float) -> None:
    life.api.statuses = ["error"] * 9
    life.api.reply("delete", error(400, "instance cannot be deleted in this state"), for_s=seconds)


def immortal(life: Life, seconds: float) -> None:
    life.api.reply("delete", Answer(200, None), for_s=seconds)


SHADEFORM = (
    Reported(
        "failed, a status that no document has",
        "shadeform",
        f"{DSTACK}/issues/3746",
        "instances end in a status 'failed'",
        "none is called ready, orders have an end",
        (bad("rent", wait_timeout_s=900), ok("reap")),
        lambda life: show(life, status="failed"),
    ),
    Reported(
        "suspended in mid-run",
        "shadeform",
        f"{DSTACK}/issues/3746",
        "joined instances have a status 'suspended' for ten minutes while heal runs",
        "nothing is left, whatever heal decides",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, status="suspended")),
            maybe("heal", 2),
            CALM,
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "a commitment of three hours",
        "shadeform",
        f"{DSTACK}/issues/3241",
        "deletes answer 409 'minimum commitment has not elapsed' for three hours, beyond the lease",
        "the reaper is red until it has ended them",
        (
            ok("rent", 2, lease_s=7200),
            then(lambda life: [item.fields.update(auto_delete=None) for item in life.ours]),
            then(lambda life: life.api.reply("delete", error(409, "minimum commitment has not elapsed"), for_s=10800)),
            bad("teardown", "commitment"),
            wait(7500),
            bad("reaper", "lab-h100-1"),
            wait(3600),
            ok("reaper"),
        ),
    ),
    Reported(
        "a cloud that keeps no deadline",
        "shadeform",
        f"{DOCUMENT}: auto_delete",
        "the server does not delete at date_threshold",
        "the reaper ends what it was left",
        (ok("rent", 2, lease_s=7200), wait(7800), ok("reaper")),
        forget_deadlines,
    ),
    Reported(
        "a deadline in another time zone",
        "shadeform",
        f"{DOCUMENT}: date_threshold",
        "the server deletes five hours early, while a run is on",
        "heal replaces what is gone, orders have an end",
        (
            ok("rent", 2, lease_s=21600),
            wait(5400),
            maybe("heal", 2),
            ok("reap"),
            ok("teardown"),
        ),
        lambda life: early_deadlines(life, 5),
    ),
    Reported(
        "no price in the bill",
        "shadeform",
        f"{DOCUMENT}: hourly_price",
        "instances have an hourly_price of null",
        "the price of the offer counts",
        (ok("rent"), bad("rent", "price caps", 3, max_total_usd_per_hour=5.0), ok("reap", says="2.4"), ok("teardown")),
        lambda life: show(life, hourly_price=None),
    ),
    Reported(
        "ids in capitals",
        "shadeform",
        "RFC 9562, 4",
        "the listing writes ids in capitals, create and delete do not",
        "one machine is one machine",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: change(life, lambda ours: [{**item, "id": item["id"].upper()} for item in ours]),
    ),
    Reported(
        "in error, and not to be deleted",
        "shadeform",
        f"{DOCUMENT}: Status error; {SKYPILOT}/issues/4392",
        "every instance ends in error, and deletes answer 400 for an hour",
        "what bills is named, and ended later",
        (bad("rent", "lab-h100-0", 2), bad("reap", "lab-h100-0"), wait(3600), ok("reap")),
        lambda life: fail_and_stay(life, 3600),
    ),
    Reported(
        "deletes are carried out later",
        "shadeform",
        "https://docs.shadeform.ai/api-reference/instances/instances-delete",
        "a delete answers 200, and the instance is active for ten minutes more",
        "it is not called gone before it is",
        (ok("rent", 2), then(lambda life: queue_deletes(life, 600)), maybe("teardown"), wait(600), ok("teardown")),
    ),
    Reported(
        "each has a ghost",
        "shadeform",
        f"{SKYPILOT}/issues/656",
        "every instance is listed a second time under an id that delete does not know, for an hour",
        "what is listed counts as billing",
        (
            ok("rent", 2),
            wait(600),
            then(ghost),
            maybe("rent", 2),
            bad("teardown", "lab-h100-0"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "nothing is available",
        "shadeform",
        f"{DOCUMENT}: availability",
        "all types are listed and none is available; creates answer 400 'not available'",
        "orders have an end",
        (bad("rent"), then(lambda life: life.count_orders(0))),
        lambda life: [take_away(life), life.api.reply("create", error(400, "type is not available"))],
    ),
    Reported(
        "a bait",
        "shadeform",
        f"{DSTACK}/issues/2490",
        "types cost a cent, instances 2.40",
        "the bill is above the cap: it is ended",
        (bad("rent", "2.4", max_price_usd_per_hour=1.0), ok("reap")),
        lambda life: reprice_offers(life, 1),
    ),
    Reported(
        "a price below nothing",
        "shadeform",
        f"{DOCUMENT}: hourly_price",
        "types cost -240 cents",
        "nothing is ordered at a price that cannot be",
        (bad("rent"), then(lambda life: life.count_orders(0))),
        lambda life: reprice_offers(life, -240),
    ),
    Reported(
        "rented again while the last ones cannot be ended",
        "shadeform",
        f"{DSTACK}/issues/3449",
        "deletes have no effect for an hour; the pool is rented again meanwhile",
        "the caps count what bills",
        (
            ok("rent", 2),
            then(lambda life: immortal(life, 3600)),
            bad("teardown", "lab-h100-0"),
            bad("rent", "", 2, max_total_usd_per_hour=6.0),
            then(lambda life: life.count_orders(2)),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "killed while it extends",
        "shadeform",
        f"{DSTACK}/issues/2068",
        "the controller dies with the third create, which takes effect a minute later; rent of two follows",
        "the third one is ended, and named until then",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: setattr(life.wire, "plan", CallCrash(life.wire.count + 4, late=True))),
            maybe("rent", 3),
            maybe("rent", 2),
            wait(600),
            maybe("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "healed after the lease",
        "shadeform",
        f"{SKYPILOT}/issues/4873",
        "an instance is lost after the deadline of the lease, where the server keeps none",
        "nothing is left that nobody looks after",
        (
            ok("rent", 2, lease_s=3600),
            wait(4000),
            then(end),
            maybe("heal", 2),
            wait(4000),
            maybe("reaper"),
            ok("teardown"),
        ),
        forget_deadlines,
    ),
)
