# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of RunPod of a fourth round, drawn from its documents and issues before any rule was looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_runpod import DOCUMENT, all_calls, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

SKYPILOT = "https://github.com/skypilot-org/skypilot"
DSTACK = "https://github.com/dstackai/dstack"
DOCS = "https://docs.runpod.io"
BILLING = "https://github.com/runpod/docs/pull/657"
BELLHOP = "bellhop-py, design notes: deleteCluster leaves pods"


def cut_names(life: Life, length: int) -> None:
    """List names cut to a length."""
    show(life, lambda item: {**item, "name": item["name"][:length]})


def end_pages(life: Life, pagination: dict[str, t.Any], *, keep: int | None = None) -> None:
    """List the first pods alone (strangers come first), with these words about further pages."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        return Answer(200, {"pods": answer.data["pods"][:keep], "pagination": pagination})

    life.api.rewrite = rewrite


def balance_zero(life: Life) -> None:
    """Stop every pod of ours; their disks bill."""
    show(life, lambda item: {**item, "status": "EXITED", "cost": 0.0, "ssh": {"proxy": None, "direct": None}})
    life.api.reply("create", error(402, "insufficient balance"))


def balance_zero_gone(life: Life, seconds: float) -> None:
    """Hide every pod of ours for a while, refuse orders; then all are back and run."""
    until = life.clock.time() + seconds
    show(life, lambda item: None if life.clock.time() < until else item)
    life.api.reply("create", error(402, "insufficient balance"), for_s=seconds)


def move_ports(life: Life) -> None:
    """Give every pod another public port, as after a restart on a community host."""
    for thing in life.ours:
        host, port, user = thing.fields["endpoint"]
        thing.fields["endpoint"] = (host, port + 7000, user)


def come_back(life: Life, seconds: float) -> None:
    """Take the first pod out of listings for a machine's maintenance; deletes do not know it either."""
    thing, until = life.first, life.clock.time() + seconds
    show(life, lambda item: None if item["id"] == thing.id and life.clock.time() < until else item)

    def before(operation: str) -> None:
        if operation == "delete" and life.clock.time() < until and life.api.find(thing.id):
            life.api.reply("delete", error(404, "pod not found"), last=1)

    life.api.on_call = before


def linger(life: Life) -> None:
    """List deleted pods as TERMINATED for two hours."""
    whole = life.api.end

    def end(thing: t.Any) -> None:
        whole(thing)
        if thing.gone_at is not None and thing.hidden_at is None:
            thing.hidden_at = thing.gone_at + 7200

    life.api.end = end

    def change(item: dict[str, t.Any]) -> dict[str, t.Any]:
        gone = life.api.things[item["id"]].gone_at is not None
        return {**item, "status": "TERMINATED", "cost": 0.0} if gone else item

    show(life, change)


def twice(life: Life, status: str) -> None:
    """List every pod of ours twice, first with a status."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        ours = [item for item in answer.data["pods"] if item["id"] not in life.strangers]
        return Answer(
            200, {**answer.data, "pods": [*({**item, "status": status} for item in ours), *answer.data["pods"]]}
        )

    life.api.rewrite = rewrite


def lock(life: Life, seconds: float) -> None:
    """Lock every pod of ours in the console for a while."""
    until = life.clock.time() + seconds
    show(life, lambda item: {**item, "locked": life.clock.time() < until})
    life.api.reply("delete", error(400, "pod is locked"), for_s=seconds)


def read_only(life: Life) -> None:
    """Take the right to write from the key."""
    for name in ("create", "create_cluster", "delete", "delete_cluster"):
        life.api.reply(name, error(403, "this API key may not write"))


RUNPOD = (
    Reported(
        "a pod that is said to be a cluster's",
        "runpod",
        f"{DOCUMENT}: DELETE /pods/{{id}} 409",
        "for ten minutes every delete answers 409 'pod belongs to a cluster' about pods that belong to none",
        "they are not forgotten: it is repeated",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", error(409, "Pod belongs to a cluster"), for_s=600),
    ),
    Reported(
        "locked pods",
        "runpod",
        f"{DOCUMENT}: Pod.locked",
        "somebody locks the pods in the console: deletes answer 400 for two hours",
        "teardown fails and names them, and ends them once they are unlocked",
        (ok("rent", 2), then(lambda life: lock(life, 7200)), bad("teardown", "lock"), wait(7200), ok("teardown")),
    ),
    Reported(
        "a balance of zero stops pods whose disks bill",
        "runpod",
        BILLING,
        "pods are EXITED at a cost of 0, and orders answer 402",
        "a cost of 0 is no end: they are deleted, and rent says what is wrong",
        (ok("rent", 2), then(balance_zero), bad("rent", count=2), wait(60), ok("teardown")),
    ),
    Reported(
        "a balance of zero, and after a payment all pods are back",
        "runpod",
        BILLING,
        "pods are gone from listings for three hours, then all of them run again",
        "what comes back is ended by teardown or the reaper, and never joins what was ordered in its place unseen",
        (
            ok("rent", 2),
            wait(300),
            then(lambda life: balance_zero_gone(life, 10800)),
            bad("rent", count=2),
            maybe("reap"),
            wait(10800),
            maybe("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "the firewall in front of the API mistakes us in mid-teardown",
        "runpod",
        "https://github.com/lumpenspace/raft/issues/14: error code 1010",
        "all calls answer 403 'error code: 1010' as text for an hour",
        "teardown fails, names the pods, and does not take it for a missing right alone",
        (
            ok("rent", 2),
            then(lambda life: all_calls(life, Answer(403, None, {}, "error code: 1010"), 3600)),
            bad("teardown"),
            bad("reaper"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "the hour's calls are used up before the teardown",
        "runpod",
        f"{DOCUMENT}: RateLimit, RateLimit-Policy",
        "every call answers 429 with Retry-After 3500 and a RateLimit that resets with the hour",
        "teardown ends in its time, fails and names the pods",
        (
            ok("rent", 2),
            then(
                lambda life: all_calls(
                    life,
                    error(429, "too many requests", **{"Retry-After": "3500", "RateLimit": '"hour";r=0;t=3500'}),
                    3500,
                )
            ),
            bad("teardown"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "names are cut",
        "runpod",
        f"{DSTACK}, runpod/compute.py: undocumented but names of length 60 work",
        "pods are listed with names of twelve characters, the token is lost",
        "the ids of the answers are enough; nothing is ordered twice",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: cut_names(life, 12),
    ),
    Reported(
        "names are cut and the answer is lost",
        "runpod",
        f"{DSTACK}, runpod/compute.py; https://github.com/transformerlab/transformerlab-app/pull/2305",
        "the create answers 500 after its effect, and the pod is listed with a name of twelve characters",
        "an unknown pod that came with our order is named, and reap does not call it clean",
        (maybe("rent"), then(lambda life: cut_names(life, 64)), wait(3600), maybe("teardown")),
        lambda life: (cut_names(life, 12), life.api.reply("create", error(500, "internal"), acts=True, last=1)),
    ),
    Reported(
        "more pages, and no cursor to them",
        "runpod",
        "RunPod v2 pagination, skypilot-nightly 1.0.0.dev20261027",
        "listings show only others' pods, with hasNextPage true and nextCursor null",
        "such a listing proves nothing: teardown fails",
        (
            ok("rent", 2),
            then(lambda life: end_pages(life, {"hasNextPage": True, "nextCursor": None}, keep=3)),
            bad("teardown"),
            bad("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "a cursor, and no more pages",
        "runpod",
        "RunPod v2 pagination, skypilot-nightly 1.0.0.dev20261027",
        "listings are whole, with hasNextPage false and an empty cursor of text",
        "they are read",
        (ok("rent", 2), ok("teardown")),
        lambda life: end_pages(life, {"hasNextPage": False, "nextCursor": ""}),
    ),
    Reported(
        "a pod comes back without GPUs",
        "runpod",
        f"{DOCS}/references/troubleshooting/zero-gpus",
        "a day later pods are listed with no GPU",
        "the second rent does not call them ready",
        (
            ok("rent", 2),
            then(lambda life: show(life, lambda item: {**item, "gpu": {"id": item["gpu"]["id"], "count": 0}})),
            bad("rent", count=2),
            ok("teardown"),
        ),
    ),
    Reported(
        "another cloud at another price",
        "runpod",
        f"{DSTACK}/issues/1886",
        "a community pod is shown in the catalog, a secure one for twice the cap is billed",
        "it is given back, and rent fails",
        (bad("rent", "cap of 5.00"), ok("teardown")),
        lambda life: show(life, lambda item: {**item, "cost": 10.1, "cloud": "SECURE"}),
    ),
    Reported(
        "the public port moves",
        "runpod",
        f"{DOCS}/pods/configuration/expose-ports: the port changes at each restart",
        "after a restart every pod has another public port",
        "the second rent orders nothing and answers the new port",
        (
            ok("rent", 2),
            then(move_ports),
            ok("rent", 2, "29001"),
            then(lambda life: life.count_orders(2)),
            ok("teardown"),
        ),
    ),
    Reported(
        "a machine's maintenance hides a pod for an hour",
        "runpod",
        f"{DOCS}/hosting/maintenance-and-reliability",
        "one pod is neither listed nor known to deletes for an hour, then runs again",
        "it is replaced, and the old one is ended when it is back",
        (
            ok("rent", 2),
            wait(300),
            then(lambda life: come_back(life, 3600)),
            maybe("rent", 2),
            wait(3600),
            maybe("reap"),
            maybe("rent", 2),
            ok("teardown"),
        ),
    ),
    Reported(
        "the version of the API is retired for a day",
        "runpod",
        f"{SKYPILOT}/pull/10846: 410 Gone",
        "every call answers 410",
        "teardown fails and names the pods",
        (
            ok("rent", 2),
            then(lambda life: all_calls(life, error(410, "this version is retired"), 9e4)),
            bad("teardown"),
            bad("reap"),
            bad("rent", count=2),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "terminated pods stay listed",
        "runpod",
        f"{DOCUMENT}: PodStatus TERMINATED, cost 0.0",
        "a deleted pod is listed as TERMINATED for two hours",
        "it bills nothing: teardown is proved",
        (ok("rent", 2), ok("teardown"), ok("reap")),
        linger,
    ),
    Reported(
        "a pod is listed twice, once as terminated",
        "runpod",
        f"{SKYPILOT}/issues/7318: the status of a pod that is both",
        "every listing has each of ours first as TERMINATED, then as it is",
        "the one that runs is believed",
        (maybe("rent", 2), maybe("teardown"), CALM, ok("teardown")),
        lambda life: twice(life, "TERMINATED"),
    ),
    Reported(
        "a key without the right to list",
        "runpod",
        f"{SKYPILOT}/issues/8411: restricted API keys",
        "listings answer 403 from the start, orders are allowed",
        "nothing is ordered that could not be found again",
        (bad("rent"), then(lambda life: life.count_orders(0)), CALM, ok("teardown")),
        lambda life: life.api.reply("list", error(403, "this API key may not read pods")),
    ),
    Reported(
        "a key that only reads",
        "runpod",
        f"{SKYPILOT}/issues/4605",
        "the key is restricted after the rent: deletes answer 403",
        "teardown, reap of what is due and the reaper fail and name the pods",
        (
            ok("rent", 2),
            then(read_only),
            bad("teardown", "403"),
            wait(90000),
            bad("reap"),
            bad("reaper"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "one price is a text",
        "runpod",
        f"{DOCUMENT}: Pod.cost",
        "costs are listed as text",
        "caps hold all the same, nothing is taken for free",
        (maybe("rent", 2), ok("teardown")),
        lambda life: show(life, lambda item: {**item, "cost": str(item["cost"])}),
    ),
)
