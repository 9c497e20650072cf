# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Vast.ai drawn independently of the code, from its document and from issues of its users."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_lambda import DSTACK, SKYPILOT
from .reported_vastai import CLIENTS, DOCUMENT, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait


def relist(life: Life, change: t.Callable[[dict[str, t.Any]], dict[str, t.Any]]) -> None:
    """Change whole answers of the listing."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        return Answer(200, change(answer.data)) if operation == "list" and answer.status == 200 else answer

    life.api.rewrite = rewrite


def hide_behind_total(data: dict[str, t.Any]) -> dict[str, t.Any]:
    """Leave our instances out of a page, and count them all the same."""
    shown = [item for item in data["instances"] if not str(item["label"]).startswith("lab-h100-")]
    return {**data, "instances": shown, "total_instances": len(data["instances"]), "instances_found": len(shown)}


def reoffer(life: Life, change: t.Callable[[dict[str, t.Any]], dict[str, t.Any]]) -> None:
    """Change every offer of a search."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "offers" or answer.status != 200:
            return answer
        return Answer(200, {"offers": [change(item) for item in answer.data["offers"]]})

    life.api.rewrite = rewrite


def name_contracts_by_text(life: Life) -> None:
    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "create" or answer.status != 200:
            return answer
        return Answer(200, {**answer.data, "new_contract": str(answer.data["new_contract"])})

    life.api.rewrite = rewrite


def unlabel_others(life: Life) -> None:
    def change(data: dict[str, t.Any]) -> dict[str, t.Any]:
        ids = set(life.strangers)
        items = [{**item, "label": None} if str(item["id"]) in ids else item for item in data["instances"]]
        return {**data, "instances": items}

    relist(life, change)


VASTAI = (
    Reported(
        "a host that is away keeps its instance",
        "vastai",
        f"{DOCUMENT}: poll trap; {CLIENTS}",
        "an instance is offline; destroy answers success and it stays listed for an hour",
        "success proves nothing: it is named",
        (
            ok("rent"),
            then(
                lambda life: [
                    show(life, actual_status="offline"),
                    life.api.reply("delete", Answer(200, {"success": True}), for_s=3600),
                ]
            ),
            bad("teardown", "lab-h100-0"),
            wait(3600),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "others have no label",
        "vastai",
        f"{SKYPILOT}/issues/7112",
        "other instances of the account have a label of null",
        "nothing breaks, and they are not touched",
        (ok("rent", 2), ok("reap"), ok("teardown")),
        unlabel_others,
    ),
    Reported(
        "our label is gone",
        "vastai",
        f"{SKYPILOT}/issues/7112",
        "labels and variables of joined instances are null for an hour",
        "what is not surely ours is not touched, and is named",
        (
            ok("rent"),
            wait(600),
            then(lambda life: show(life, label=None, extra_env=None)),
            bad("teardown", "delete it there if it is yours"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "the last page leads to the first",
        "vastai",
        f"{DOCUMENT}: next_token",
        "next_token of the last page is that of the first",
        "the listing ends, and proves nothing",
        (
            ok("rent"),
            then(lambda life: relist(life, lambda data: {**data, "instances": [], "next_token": "0"})),
            bad("teardown", "lab-h100-0"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "fewer are listed than are counted",
        "vastai",
        f"{DOCUMENT}: total_instances",
        "ours are not in the listing, but in its total_instances, and destroy answers 404, for two hours",
        "a listing that says itself that it is short proves no absence",
        (
            ok("rent"),
            wait(600),
            then(
                lambda life: [
                    relist(life, hide_behind_total),
                    life.api.reply("delete", error(404, "not_found", "Instance not found"), for_s=7200),
                ]
            ),
            bad("teardown", "lab-h100-0"),
            wait(7200),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "destroy is throttled in plain text",
        "vastai",
        f"{CLIENTS}: 429 in plain text",
        "destroy answers 429 'API requests too frequent' for an hour",
        "the instances are named",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("delete", Answer(429, text="API requests too frequent"), for_s=3600)),
            bad("teardown", "lab-h100-1"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "ids are text",
        "vastai",
        f"{DOCUMENT}: known defects of its types",
        "listings give ids as text",
        "it is the same machine",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("reap"), ok("teardown")),
        lambda life: relist(
            life, lambda data: {**data, "instances": [{**item, "id": str(item["id"])} for item in data["instances"]]}
        ),
    ),
    Reported(
        "new_contract is text",
        "vastai",
        f"{DOCUMENT}: known defects of its types",
        "orders answer new_contract as text",
        "it is the same machine",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        name_contracts_by_text,
    ),
    Reported(
        "gone, and an instance all the same",
        "vastai",
        f"{DOCUMENT}: 410 no_such_ask with cancel_unavail",
        "the first order answers 410 and makes its instance",
        "it does not bill beside the pool",
        (maybe("rent"), ok("reap"), ok("teardown")),
        lambda life: life.api.reply("create", error(410, "no_such_ask", "no longer available"), acts=True, last=1),
    ),
    Reported(
        "one object for a listing",
        "vastai",
        f"{DOCUMENT}: showInstance answers an object",
        "instances is one object, not an array, for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(
                lambda life: life.api.reply("list", Answer(200, {"success": True, "instances": {"id": 1}}), for_s=1200)
            ),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "a key that may only read",
        "vastai",
        f"{DOCUMENT}: scopes of keys",
        "destroy answers 401 'Invalid user key' for an hour",
        "the instance is named, with 401",
        (
            ok("rent"),
            then(lambda life: life.api.reply("delete", error(401, "auth_error", "Invalid user key"), for_s=3600)),
            bad("teardown", "401"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "the heartbeat is lost while it starts",
        "vastai",
        f"{DOCUMENT}: actual_status unknown",
        "the first instance becomes 'unknown'",
        "it is ended, and another host is taken",
        (ok("rent", 2), then(lambda life: life.count_orders(3)), ok("teardown")),
        lambda life: setattr(life.api, "statuses", ["unknown"]),
    ),
    Reported(
        "offers that cannot be rented",
        "vastai",
        f"{DSTACK}/issues/958",
        "every offer has rentable false",
        "what is advertised is advice: what is had all the same is used, and ends",
        (maybe("rent"), ok("reap"), ok("teardown")),
        lambda life: reoffer(life, lambda item: {**item, "rentable": False}),
    ),
    Reported(
        "a search that ignores its filter",
        "vastai",
        f"{DSTACK}/issues/1151",
        "a search for H100 answers with A40 offers",
        "nothing is ordered, and it is said",
        (bad("rent"), then(lambda life: life.count_orders(0))),
        lambda life: reoffer(life, lambda item: {**item, "gpu_name": "A40", "gpu_ram": 46068}),
    ),
    Reported(
        "offers are an object",
        "vastai",
        f"{DOCUMENT}: the example of the search",
        "a search answers offers as one object",
        "nothing is ordered, and it is said",
        (bad("rent"), then(lambda life: life.count_orders(0))),
        lambda life: life.api.reply("offers", Answer(200, {"offers": {"id": 1}})),
    ),
    Reported(
        "offers without a price",
        "vastai",
        f"{DOCUMENT}: dph_total; {DSTACK}/pull/760",
        "offers and listings have a price of 0",
        "a price of 0 is not known, so no cap could be held: nothing is ordered",
        (bad("rent", max_total_usd_per_hour=5.0), then(lambda life: life.count_orders(0))),
        lambda life: reoffer(life, lambda item: {**item, "dph_total": 0.0}),
    ),
    Reported(
        "waits for its processors",
        "vastai",
        "https://github.com/vast-ai/docs/pull/951",
        "joined instances are 'scheduling' after their host restarted",
        "none is left when the pool ends",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, actual_status="scheduling", cur_state="stopped")),
            maybe("rent", 2, wait_timeout_s=300),
            ok("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "an order without a contract",
        "vastai",
        f"{DOCUMENT}: createInstance",
        "an order answers success without new_contract, and the instance exists",
        "it is found by its label",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(200, {"success": True}), acts=True, last=1),
    ),
)
