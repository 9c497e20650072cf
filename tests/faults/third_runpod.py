# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of RunPod of a third round, drawn from issues and its document before the rules were looked at."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_lambda import DSTACK, SKYPILOT
from .reported_runpod import DOCUMENT, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

CLIENT = "https://github.com/runpod/runpod-python"


def listing(life: Life, answer: Answer, seconds: float) -> None:
    life.api.reply("list", answer, for_s=seconds)


def gap(life: Life, shown: int, seconds: float) -> None:
    """List a pod so many times, then not for a while, then for good."""
    seen: dict[str, list[float]] = {}

    def change(item: dict[str, t.Any]) -> dict[str, t.Any] | None:
        times = seen.setdefault(item["id"], [])
        times.append(life.clock.time())
        hidden = len(times) > shown and life.clock.time() < times[shown - 1] + seconds
        return None if hidden else item

    show(life, change)


def hold(life: Life, seconds: float) -> None:
    """Refuse to delete a pod in its first minutes."""

    def before(operation: str) -> None:
        young = [item for item in life.ours if life.clock.time() < item.made_at + seconds]
        if operation == "delete" and young:
            life.api.reply("delete", error(400, "pod is within its minimum reservation"), last=1)

    life.api.on_call = before


def shuffle(life: Life) -> None:
    """Give pages of one pod in another order each time."""
    turns, whole = itertools.count(), life.api.visible
    life.api.page = 1

    def visible(call: t.Any) -> list[t.Any]:
        listed: list[t.Any] = whole(call)
        turn = next(turns)
        return listed[turn % len(listed) :] + listed[: turn % len(listed)] if listed else listed

    life.api.visible = visible


def in_order(life: Life) -> None:
    del life.api.visible


def drain(life: Life) -> None:
    """Have nothing to offer, and nothing to create, once a pod was made."""

    def before(operation: str) -> None:
        if operation == "create" and life.ours:
            life.api.reply("offers", Answer(200, {"gpus": []}))
            life.api.reply("create", error(400, "There are no longer any instances available"))

    life.api.on_call = before


def drop_cluster(life: Life) -> None:
    """Delete a cluster in the console; its pods stay, as pods that stand alone."""
    for item in life.ours:
        if item.fields["kind"] == "cluster":
            item.gone_at = life.clock.time()
        item.fields["cluster"] = None


def stop_first(life: Life) -> None:
    """List the first pod as stopped, at no cost."""
    key = life.first.id
    show(life, lambda item: {**item, "status": "EXITED", "cost": 0.0} if item["id"] == key else item)


RUNPOD = (
    Reported(
        "something went wrong",
        "runpod",
        f"{CLIENT}/issues/239",
        "deletes answer 500 'Something went wrong. Please try again later or contact support.' for half an hour",
        "the pods are named with that text",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("delete", error(500, "Something went wrong."), for_s=1800)),
            bad("teardown", "Something went wrong"),
            wait(1800),
            ok("teardown"),
        ),
    ),
    Reported(
        "accepted, without a body",
        "runpod",
        "https://github.com/objctp/runpod-cli/issues/48",
        "creates answer 202 without a body; the pods are made",
        "they are found by their names, one order each",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(202, None), acts=True),
    ),
    Reported(
        "a gap while the pod appears",
        "runpod",
        "https://github.com/transformerlab/transformerlab-app/pull/1680",
        "a new pod is listed once, then not for 45 seconds",
        "it is awaited",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: gap(life, 1, 45),
    ),
    Reported(
        "the container cannot be made",
        "runpod",
        f"{DSTACK}/issues/1976",
        "pods are RUNNING and never have an address: 'layer does not exist'",
        "none is called ready, orders have an end",
        (bad("rent", wait_timeout_s=1800), ok("reap")),
        lambda life: show(life, lambda item: {**item, "ssh": {"proxy": None, "direct": None}, "runtime": None}),
    ),
    Reported(
        "a minimum reservation",
        "runpod",
        f"{DSTACK}/issues/3241",
        "a pod cannot be deleted in its first hour: 400",
        "it is named with that cause, and ended later",
        (ok("rent", 2), bad("teardown", "minimum reservation"), wait(3600), ok("teardown")),
        lambda life: hold(life, 3600),
    ),
    Reported(
        "a reservation stands against a rent that fails",
        "runpod",
        f"{DSTACK}/issues/3241",
        "every pod ends in ERROR, and cannot be deleted in its first 15 minutes",
        "rent says what still bills, and the reaper ends it",
        (bad("rent", "lab-h100-0"), wait(1200), ok("reaper")),
        lambda life: [setattr(life.api, "statuses", ["ERROR"] * 9), hold(life, 900)],
    ),
    Reported(
        "a bare list",
        "runpod",
        f"{DOCUMENT}: ListPodsResponse; v1 answered an array",
        "the listing is an empty array for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(lambda life: listing(life, Answer(200, []), 1200)),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "pods under another name",
        "runpod",
        f"{DOCUMENT}: ListPodsResponse",
        "the listing has its pods under 'items' for twenty minutes",
        "that proves no absence, and rent orders nothing",
        (
            ok("rent"),
            then(lambda life: listing(life, Answer(200, {"items": [], "pagination": {}}), 1200)),
            bad("rent", "", 2),
            then(lambda life: life.count_orders(1)),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "no content",
        "runpod",
        "RFC 9110, 15.3.5",
        "the listing answers 204 for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(lambda life: listing(life, Answer(204), 1200)),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "errors in a 200",
        "runpod",
        f"{CLIENT}/issues/150",
        "the listing answers 200 with errors and data null for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(
                lambda life: listing(
                    life, Answer(200, {"data": None, "errors": [{"message": "INTERNAL_SERVER_ERROR"}]}), 1200
                )
            ),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "an answer without a bottom",
        "runpod",
        "https://github.com/python/cpython/issues/62070",
        "the listing is a hundred thousand opened brackets for an hour",
        "it is an answer that cannot be read, and nothing more",
        (
            ok("rent"),
            then(lambda life: listing(life, Answer(200, text='{"pods": ' + "[" * 100_000), 3600)),
            bad("teardown", "lab-h100-0"),
            bad("reaper"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "a mark before the text",
        "runpod",
        "RFC 8259, 8.1",
        "the listing begins with a byte order mark for twenty minutes",
        "it is read, or proves nothing",
        (
            ok("rent"),
            then(lambda life: listing(life, Answer(200, text='\ufeff{"pods": []}'), 1200)),
            maybe("teardown"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "a cost that is no number",
        "runpod",
        f"{DOCUMENT}: Pod.cost",
        "pods cost NaN, which is no JSON",
        "the answer cannot be read: rent says so, and leaves nothing",
        (bad("rent", "runpod cannot be listed"), CALM, ok("reap")),
        lambda life: show(life, lambda item: {**item, "cost": float("nan")}),
    ),
    Reported(
        "names in capitals",
        "runpod",
        f"{SKYPILOT}/issues/10742",
        "names are listed in capitals",
        "each pod is known by its id and its variables",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("reap"), ok("teardown")),
        lambda life: show(life, lambda item: {**item, "name": item["name"].upper()}),
    ),
    Reported(
        "wait until yesterday",
        "runpod",
        "RFC 9110, 10.2.3",
        "deletes answer 429 with a Retry-After of -5, and of a date that has passed, ten times",
        "it goes on",
        (
            ok("rent", 2),
            then(
                lambda life: [
                    life.api.reply("delete", error(429, "slow", **{"Retry-After": "-5"}), last=5),
                    life.api.reply(
                        "delete",
                        error(429, "slow", **{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
                        first=6,
                        last=10,
                    ),
                ]
            ),
            ok("teardown"),
        ),
    ),
    Reported(
        "the last one is sold in between",
        "runpod",
        "https://github.com/runpod/runpodctl/issues/189",
        "after the first create nothing is offered any more",
        "the first one is given back",
        (bad("rent", "no longer any instances", 2), ok("reap")),
        drain,
    ),
    Reported(
        "pages in another order each time",
        "runpod",
        f"{SKYPILOT}/issues/6853",
        "pages of one pod, whose order changes between them, for twenty minutes",
        "a pod that slips between two pages is not gone",
        (
            ok("rent", 2),
            wait(600),
            then(shuffle),
            maybe("rent", 2),
            maybe("heal", 2),
            maybe("teardown"),
            then(in_order),
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "a cluster is made, and an error answered",
        "runpod_cluster",
        "https://github.com/transformerlab/transformerlab-app/pull/2305",
        "every create of a cluster answers 500 and makes it",
        "it is found by its name; at most one at a time",
        (maybe("rent", 2), ok("reap"), ok("teardown")),
        lambda life: life.api.reply("create_cluster", error(500, "read-back failed"), acts=True),
    ),
    Reported(
        "a cluster is deleted in the console, and its pods stay",
        "runpod_cluster",
        f"{DOCUMENT}: DELETE /v2/clusters",
        "the cluster is gone, its pods stand alone and run",
        "the pods are ended one by one",
        (ok("rent", 2), wait(600), then(drop_cluster), maybe("reap"), ok("teardown")),
    ),
    Reported(
        "stopped by hand to save money",
        "runpod",
        f"{SKYPILOT}/issues/632",
        "a joined pod is EXITED at cost 0 for good",
        "heal replaces it and ends it",
        (
            ok("rent", 2),
            wait(600),
            then(stop_first),
            maybe("heal", 2),
            CALM,
            ok("reap"),
            ok("teardown"),
        ),
    ),
)
