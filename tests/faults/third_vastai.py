# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Vast.ai of a third round, drawn from issues and its document before the rules were looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from .drawn_vastai import relist, reoffer
from .reported_lambda import DSTACK, SKYPILOT
from .reported_vastai import CLIENTS, DOCUMENT, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

DEPRECATED = Answer(200, {"success": False, "error": "deprecated_endpoint", "msg": "/api/v1/instances/ is deprecated."})


def hide_once(life: Life, seconds: float) -> None:
    """Accept the first destroy without an effect, and list nothing of it for a while."""
    whole = life.api.end
    refused: dict[str, float] = {}

    def end(thing: t.Any) -> None:
        if thing.id in refused:
            whole(thing)
        refused.setdefault(thing.id, life.clock.time())

    def change(data: dict[str, t.Any]) -> dict[str, t.Any]:
        now = life.clock.time()
        shown = [item for item in data["instances"] if now >= refused.get(str(item["id"]), -seconds) + seconds]
        return {**data, "instances": shown, "total_instances": len(shown), "instances_found": len(shown)}

    life.api.end = end
    relist(life, change)


def one_offer(life: Life) -> None:
    """Have one offer, which a search names five times."""
    key = min(life.api.asks)
    life.api.asks = {key: life.api.asks[key]}

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "offers" or answer.status != 200:
            return answer
        return Answer(200, {"offers": answer.data["offers"] * 5})

    life.api.rewrite = rewrite


def sell_twice(life: Life) -> None:
    """Sell every offer as often as it is taken; only its first instance ever runs."""
    whole, sold = life.api.make, set()

    def make(name: str, **fields: t.Any) -> t.Any:
        ends = "created" if fields.get("ask") in sold else fields["end"]
        sold.add(fields.get("ask"))
        return whole(name, **{**fields, "end": ends})

    life.api.make = make
    for item in life.api.asks.values():
        item["machine_id"] = 500


def look_alikes(life: Life) -> None:
    """Bring instances of others into being whose labels are nearly ours."""
    names = (
        "lab-h100-0",
        "lab-h100-0-1234567",
        "lab-h100-0-1234ABCD",
        "lab-h100-0-1234abcd-copy",
        "Xlab-h100-0-1234abcd",
    )
    for name in names:
        life.strangers.append(life.api.stranger(name).id)


VASTAI = (
    Reported(
        "the endpoint of the listing is retired",
        "vastai",
        f"{SKYPILOT}/issues/10517",
        "the listing answers 200 with success false, deprecated_endpoint, once two instances are joined, for two hours",
        "rent orders nothing more, and teardown names what bills",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("list", DEPRECATED, for_s=7200)),
            bad("rent", "deprecated", 3),
            then(lambda life: life.count_orders(2)),
            bad("teardown", "lab-h100-0"),
            bad("reaper"),
            wait(7200),
            ok("teardown"),
        ),
    ),
    Reported(
        "retired in the middle of a launch",
        "vastai",
        f"{SKYPILOT}/issues/10517",
        "from the first order on the listing answers 200 with deprecated_endpoint, for an hour",
        "no storm of orders, and what was ordered is named",
        (
            bad("rent", "", 2, wait_timeout_s=900),
            then(lambda life: life.problems.extend(["a storm of orders"] if life.excess else [])),
            wait(3600),
            ok("reap"),
            ok("teardown"),
        ),
        lambda life: setattr(
            life.api,
            "on_call",
            lambda operation: (
                life.api.reply("list", DEPRECATED, for_s=3600)
                if operation == "create" and not life.api.replies
                else None
            ),
        ),
    ),
    Reported(
        "an empty text for a listing",
        "vastai",
        f"{SKYPILOT}/issues/10517",
        "the listing answers 200 with an empty text in quotes for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(lambda life: life.api.reply("list", Answer(200, text='""'), for_s=1200)),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "a bid that is too low",
        "vastai",
        f"{DSTACK}/pull/4036",
        "instances are made and never started: intended_status stopped, actual_status null",
        "none is called ready, orders have an end, and their disks do not bill on",
        (bad("rent", wait_timeout_s=1200), ok("reap")),
        lambda life: show(life, actual_status=None, cur_state="stopped", intended_status="stopped"),
    ),
    Reported(
        "the second factor has expired",
        "vastai",
        "https://github.com/LibreYOLO/libreyolo/pull/505",
        "destroy answers 401 tfa_required for an hour, listings work",
        "it is named with that cause",
        (
            ok("rent"),
            then(lambda life: life.api.reply("delete", error(401, "tfa_required", "log in again"), for_s=3600)),
            bad("teardown", "lab-h100-0"),
            bad("teardown", "tfa_required"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "frozen",
        "vastai",
        f"{CLIENTS}: actual_status frozen",
        "joined instances are frozen for ten minutes while heal runs",
        "nothing is left whatever heal decides",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, actual_status="frozen")),
            maybe("heal", 2),
            CALM,
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "the disk costs besides",
        "vastai",
        f"{DOCUMENT}: dph_total and storage_total_cost; {DSTACK}/pull/760",
        "instances bill a tenth more than their offers",
        "within the cap they stay, and reap says the bill",
        (ok("rent"), ok("reap", says="2.2"), ok("teardown")),
        lambda life: show(life, dph_total=2.2),
    ),
    Reported(
        "prices are text",
        "vastai",
        f"{DOCUMENT}: known defects of its types",
        "the listing gives dph_total as text, above the cap",
        "a price that cannot be read is the offer's, or it is read",
        (maybe("rent", max_price_usd_per_hour=5.0), ok("reap"), ok("teardown")),
        lambda life: show(life, dph_total="29.90"),
    ),
    Reported(
        "one offer for all workers",
        "vastai",
        f"{SKYPILOT}/pull/9117",
        "a search names one offer five times; the second order of it answers 410",
        "half a gang is given back",
        (bad("rent", "", 2), ok("reap")),
        one_offer,
    ),
    Reported(
        "two instances of one machine",
        "vastai",
        f"{SKYPILOT}/pull/9117",
        "all offers are of one machine, and an offer that is sold again stays in 'created'",
        "nothing is left, whatever runs",
        (maybe("rent", 2, wait_timeout_s=900), ok("reap"), ok("teardown")),
        sell_twice,
    ),
    Reported(
        "destroyed, away, and there again",
        "vastai",
        f"{SKYPILOT}/issues/779",
        "the first destroy has no effect, and the instance is not listed for 45 seconds",
        "it is destroyed again",
        (ok("rent", 2), then(lambda life: hide_once(life, 45)), ok("teardown")),
    ),
    Reported(
        "the position in the listing is ignored",
        "vastai",
        f"{DOCUMENT}: after_token",
        "every page is the whole listing with a next_token, for twenty minutes",
        "the listing ends, and no instance is counted twice",
        (
            ok("rent", 2),
            then(lambda life: relist(life, lambda data: {**data, "next_token": "again"})),
            maybe("reap"),
            maybe("teardown"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "a search that fails in a 200",
        "vastai",
        f"{DOCUMENT}: the search answers success",
        "searches answer 200 with success false and an error",
        "nothing is ordered, and the error is said",
        (bad("rent", "overloaded"), then(lambda life: life.count_orders(0))),
        lambda life: life.api.reply("offers", Answer(200, {"success": False, "error": "overloaded", "msg": "later"})),
    ),
    Reported(
        "no money, in a 200",
        "vastai",
        f"{DOCUMENT}: createInstance; {CLIENTS}",
        "orders answer 200 with success false, insufficient_credit",
        "orders have an end, and the cause is said",
        (bad("rent", "insufficient_credit"), then(lambda life: life.count_orders(0)), ok("reap")),
        lambda life: life.api.reply("create", error(200, "insufficient_credit", "your balance is too low")),
    ),
    Reported(
        "labels that are nearly ours",
        "vastai",
        f"{SKYPILOT}/issues/1853",
        "others have instances whose labels differ from ours by a letter, a digit or an end",
        "none of them is touched, with consent for orphans too",
        (
            ok("rent", 2),
            ok("reap", orphans="delete"),
            ok("teardown", orphans="delete"),
        ),
        look_alikes,
    ),
    Reported(
        "offers that change their price on the way",
        "vastai",
        f"{DSTACK}/issues/2490",
        "offers cost 2 in a search and their instances 4.9, below the cap of each and above that of all",
        "all are given back, and the bill is said",
        (bad("rent", "at 4.90 USD", 2, max_total_usd_per_hour=6.0), ok("reap")),
        lambda life: show(life, dph_total=4.9),
    ),
    Reported(
        "no machine of its own",
        "vastai",
        f"{DOCUMENT}: machine_id",
        "offers and instances have a machine_id of null",
        "nothing breaks",
        (ok("rent", 2), ok("reap"), ok("teardown")),
        lambda life: [
            reoffer(life, lambda item: {**item, "machine_id": None}),
        ],
    ),
)
