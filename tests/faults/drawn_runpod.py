# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of RunPod drawn independently of the code, from its document and from issues of its users."""

from __future__ import annotations

import dataclasses

from ansible_collections.muster.training.tests.fakes.api import Answer

from .drawn_lambda import revive
from .reported_lambda import DSTACK, SKYPILOT
from .reported_runpod import DOCUMENT, all_calls, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

DOCS = "https://docs.runpod.io"


def move(life: Life, suffix: str = "") -> None:
    """Move a pod to another host: the same machine under a new id."""
    old = life.first
    old.gone_at = life.clock.time()
    life.api.make(old.name + suffix, **old.fields)


def break_last_page(life: Life) -> None:
    """Answer 502 to the last page of every listing."""
    life.api.page = 1

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation == "list" and answer.status == 200 and not answer.data["pagination"]["hasNextPage"]:
            return Answer(502, text="Bad Gateway")
        return answer

    life.api.rewrite = rewrite


def repeat_cursor(life: Life) -> None:
    """Name the same cursor on every page."""
    more = {"nextCursor": "more-1", "hasNextPage": True}

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation == "list" and answer.status == 200:
            return Answer(200, {"pods": answer.data["pods"][:1], "pagination": more})
        return answer

    life.api.rewrite = rewrite


def answer_first_again(life: Life) -> None:
    """Answer every create with the first one's pod, as from a cache; each makes its own."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "create" or answer.status != 201:
            return answer
        return Answer(201, {**answer.data, "id": life.first.id, "name": life.first.name})

    life.api.rewrite = rewrite


def keep_ended(life: Life) -> None:
    """List what has ended as TERMINATED at no cost, for ever."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        shown = {item["id"] for item in answer.data["pods"]}
        gone = [item for item in life.api.things.values() if item.id not in shown and item.fields["kind"] == "pod"]
        ended = [{**life.api._pod(item), "status": "TERMINATED", "cost": 0.0} for item in gone]
        return Answer(200, {**answer.data, "pods": [*answer.data["pods"], *ended]})

    life.api.rewrite = rewrite


def new_ports(life: Life) -> None:
    for item in life.ours:
        item.fields["endpoint"] = ("203.0.113.9", 22999, "root")


def throttle(life: Life, operation: str, wait_s: int, for_s: float) -> None:
    life.api.reply(operation, error(429, "rate limit exceeded", **{"Retry-After": str(wait_s)}), for_s=for_s)


RUNPOD = (
    Reported(
        "the balance is used up in mid-run",
        "runpod",
        f"{DOCS}/accounts-billing/billing.md: low balance behavior",
        "joined pods are EXITED at cost 0, and their volumes bill on",
        "rent does not call them ready; teardown ends them",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, lambda item: {**item, "status": "EXITED", "cost": 0.0})),
            bad("rent", "", 2),
            ok("teardown"),
        ),
    ),
    Reported(
        "what has ended stays listed",
        "runpod",
        f"{DOCUMENT}: PodStatus TERMINATED",
        "ended pods are listed as TERMINATED for ever",
        "teardown is green, and they are not ended again",
        (ok("rent", 2), ok("teardown"), ok("reap")),
        keep_ended,
    ),
    Reported(
        "a running pod at cost 0",
        "runpod",
        f"{DOCUMENT}: Pod.cost",
        "pods are RUNNING and listed at a cost of 0",
        "the price of the offer counts against the caps",
        (
            ok("rent"),
            bad("rent", "price caps", 3, max_total_usd_per_hour=6.0),
            then(lambda life: life.count_orders(1)),
            ok("reap", says="2.99"),
            ok("teardown"),
        ),
        lambda life: show(life, lambda item: {**item, "cost": 0.0}),
    ),
    Reported(
        "a conflict for a pod of no cluster",
        "runpod",
        f"{DOCUMENT}: DELETE /v2/pods 409",
        "deletes of a pod that stands alone answer 409 for an hour",
        "it is named as billing",
        (
            ok("rent"),
            then(lambda life: life.api.reply("delete", error(409, "Pod belongs to a cluster"), for_s=3600)),
            bad("teardown", "lab-h100-0"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "the last page is broken",
        "runpod",
        f"{SKYPILOT}/issues/6853",
        "the last page of every listing answers 502 for an hour",
        "an incomplete listing proves nothing",
        (ok("rent", 2), then(break_last_page), bad("teardown", "502"), wait(3600), CALM, ok("teardown")),
    ),
    Reported(
        "every page names one cursor",
        "runpod",
        f"{SKYPILOT}/issues/6853",
        "each page has the first pod and the same next cursor",
        "the listing ends, and proves nothing",
        (ok("rent", 2), then(repeat_cursor), bad("teardown", "lab-h100-1"), wait(600), CALM, ok("teardown")),
    ),
    Reported(
        "a listing of null",
        "runpod",
        f"{DOCUMENT}: ListPodsResponse",
        "the listing answers pods: null for twenty minutes",
        "that proves no absence",
        (
            ok("rent"),
            then(lambda life: life.api.reply("list", Answer(200, {"pods": None}), for_s=1200)),
            bad("teardown", "lab-h100-0"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "the hour's calls are used up",
        "runpod",
        f"{DOCUMENT}: RateLimit-Policy 'hour'",
        "deletes answer 429 with Retry-After 3600",
        "the wait has an end, and the pod is named",
        (
            ok("rent"),
            then(lambda life: throttle(life, "delete", 3600, 3600)),
            bad("teardown", "lab-h100-0"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "the day's calls are used up",
        "runpod",
        f"{DOCUMENT}: RateLimit-Policy 'day'",
        "listings answer 429 with Retry-After 86400 for three hours",
        "rent orders nothing; the pods are named by reap and teardown",
        (
            ok("rent", 2),
            then(lambda life: throttle(life, "list", 86400, 10800)),
            bad("rent", "429", 3),
            then(lambda life: life.count_orders(2)),
            bad("reap"),
            bad("teardown", "lab-h100-1"),
            wait(10800),
            ok("teardown"),
        ),
    ),
    Reported(
        "a locked pod",
        "runpod",
        f"{DOCUMENT}: Pod.locked",
        "deletes answer 400 'pod is locked' for an hour",
        "it is named with that cause",
        (
            ok("rent"),
            then(lambda life: life.api.reply("delete", error(400, "pod is locked"), for_s=3600)),
            bad("teardown", "locked"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "a pod has moved",
        "runpod",
        f"{DOCS}/pods/manage-pods.md",
        "a joined pod is on another host, under its name and a new id",
        "both ids end",
        (ok("rent", 2), wait(600), then(move), maybe("rent", 2), ok("reap"), ok("teardown")),
    ),
    Reported(
        "a pod has moved and was renamed",
        "runpod",
        f"{DOCS}/pods/manage-pods.md: '-migration'",
        "a joined pod has a new id, and '-migration' behind its name",
        "its variable tells whose it is",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: move(life, "-migration")),
            maybe("rent", 2),
            ok("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "made in another century",
        "runpod",
        f"{DOCUMENT}: Pod.createdAt",
        "createdAt is in 2106 and has no zone",
        "nothing depends on it",
        (ok("rent", 2), ok("reap"), ok("teardown")),
        lambda life: show(life, lambda item: {**item, "createdAt": "2106-02-07 06:28:15", "startedAt": "soon"}),
    ),
    Reported(
        "the clusters are not listed",
        "runpod_cluster",
        f"{DOCUMENT}: ListClustersResponse",
        "the listing of clusters is empty for twenty minutes, and deleting one answers 404; its pods are listed",
        "the pods tell that it bills",
        (
            ok("rent", 2),
            wait(600),
            then(
                lambda life: [
                    life.api.reply("list_clusters", Answer(200, {"clusters": []}), for_s=3600),
                    life.api.reply("delete_cluster", error(404, "cluster not found"), for_s=3600),
                ]
            ),
            bad("teardown", "lab-h100-0"),
            wait(3600),
            ok("teardown"),
        ),
    ),
    Reported(
        "a cluster's pods appear one by one",
        "runpod_cluster",
        f"{DOCUMENT}: Cluster.pods.byStatus",
        "of a cluster of two pods one is listed for half an hour",
        "the price of the whole cluster is said",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, lambda item: None if item["name"].endswith("-1") else item)),
            ok("reap", says="5.98"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "a gateway refuses for a moment",
        "runpod",
        f"{DSTACK}/issues/1551",
        "two listings of a teardown answer 401",
        "it goes on",
        (ok("rent", 2), then(lambda life: life.api.reply("list", error(401, "unauthorized"), last=2)), ok("teardown")),
    ),
    Reported(
        "a host restarts",
        "runpod",
        f"{DOCS}/pods/maintenance-and-outages.md",
        "joined pods are PROVISIONING again for twenty minutes",
        "no third one is ordered beside them without an end of the first",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, lambda item: {**item, "status": "PROVISIONING"})),
            maybe("rent", 2, wait_timeout_s=300),
            ok("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "another port after a reset",
        "runpod",
        f"{DOCUMENT}: PodSsh.direct",
        "joined pods have another address and port",
        "rent says the new ones, and orders nothing",
        (
            ok("rent", 2),
            wait(600),
            then(new_ports),
            ok("rent", 2, says="22999"),
            then(lambda life: life.count_orders(2)),
            ok("teardown"),
        ),
    ),
    Reported(
        "one answer for two orders",
        "runpod",
        "https://github.com/artokun/comfyui-mcp/pull/251",
        "the second create makes its pod and answers with the first one's",
        "two machines are two machines, and both end",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        answer_first_again,
    ),
    Reported(
        "an id that is not the pod's",
        "runpod",
        f"{SKYPILOT}/issues/7336",
        "create answers with another id than the one under which the pod is listed",
        "it is found by its name, and both are ended",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(201, {"id": "request-0", "name": "x"}), acts=True, last=1),
    ),
    Reported(
        "no resources, as an error of the server",
        "runpod",
        "https://github.com/runpod/runpodctl/issues/189",
        "creates answer 500 'This machine does not have the resources to deploy your pod'",
        "each is looked for, orders have an end, and the text is said",
        (bad("rent", "resources"), ok("reap")),
        lambda life: life.api.reply(
            "create", error(500, "This machine does not have the resources to deploy your pod.")
        ),
    ),
    Reported(
        "runs again after its proof",
        "runpod",
        f"{SKYPILOT}/issues/779",
        "pods that were proved gone run again an hour later, while the API throttles",
        "the reaper is red until it has ended them",
        (
            ok("rent", 2),
            ok("teardown"),
            wait(3600),
            then(lambda life: [revive(life), throttle(life, "delete", 60, 3600)]),
            bad("reaper"),
            wait(3600),
            ok("reaper"),
        ),
    ),
    Reported(
        "the deadline passes in an outage",
        "runpod",
        f"{DSTACK}/issues/3453",
        "every call answers 503 from before the deadline until two hours after it",
        "the reaper is red and names the pods, then ends them",
        (
            ok("rent", 2, lease_s=7200),
            wait(6000),
            then(lambda life: all_calls(life, dataclasses.replace(error(503, "away")), 8400)),
            bad("reaper"),
            wait(3000),
            bad("reap", "lab-h100-0"),
            wait(6000),
            ok("reaper"),
        ),
    ),
)
