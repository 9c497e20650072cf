# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reported faults of RunPod: pods, and Instant Clusters."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.cycle import CallCrash

from .reported_lambda import DSTACK, SKYPILOT, end
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

DOCUMENT = "RunPod API 2.0.0, openapi-v2.json"


def error(status: int, detail: str, **headers: str) -> Answer:
    return Answer(status, {"title": "Error", "status": status, "detail": detail}, headers)


def show(life: Life, change: t.Callable[[dict[str, t.Any]], dict[str, t.Any] | None]) -> None:
    """List our pods as ``change`` returns them, without those for which it returns None."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        listed = [item if item["id"] in life.strangers else change(item) for item in answer.data["pods"]]
        return Answer(200, {**answer.data, "pods": [item for item in listed if item is not None]})

    life.api.rewrite = rewrite


def hide(life: Life, seconds: float) -> None:
    """List none of ours for a while, as a replica that lags behind."""
    until = life.clock.time() + seconds
    show(life, lambda item: None if life.clock.time() < until else item)


def lag(life: Life, seconds: float) -> None:
    """Answer from a replica that has never heard of our pods: not listed, and 404 to a delete."""
    hide(life, seconds)
    life.api.reply("delete", error(404, "pod not found"), for_s=seconds)


def all_calls(life: Life, answer: Answer | None, seconds: float, *but: str) -> None:
    for name in ("list", "list_clusters", "offers", "create", "delete", "delete_cluster", "leftovers"):
        if name not in but:
            life.api.reply(name, answer, for_s=seconds)


def flap(life: Life) -> None:
    """Let a pod's container start and exit by turns."""
    count = iter(range(10**6))
    show(life, lambda item: {**item, "status": "EXITED" if next(count) % 2 else "RUNNING"})


RUNPOD = (
    Reported(
        "create answers 500 and the pod runs",
        "runpod",
        "https://github.com/transformerlab/transformerlab-app/pull/2305",
        "create answers 500 after the pod was made, which is listed 40 seconds later",
        "it is found by its name, and not ordered again",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: [life.api.reply("create", error(500, "column does not exist"), acts=True, last=1), hide(life, 40)],
    ),
    Reported(
        "a new pod is not known yet",
        "runpod",
        "https://github.com/peters/horizon/pull/372",
        "the controller dies with the create; for 50 seconds listings lack the pod and a delete of it answers 404",
        "a teardown at once does not take that for an absence",
        (maybe("rent"), ok("teardown")),
        lambda life: [setattr(life.wire, "plan", CallCrash(6, after=True)), lag(life, 50)],
    ),
    Reported(
        "a replica has lost the account for half a minute",
        "runpod",
        "https://github.com/peters/horizon/pull/372",
        "an hour after rent, 30 seconds long: listings are empty and deletes answer 404; the pods run",
        "teardown does not call them proved gone",
        (ok("rent", 2), wait(3600), then(lambda life: lag(life, 30)), ok("teardown")),
    ),
    Reported(
        "a pod stays in PROVISIONING",
        "runpod",
        f"{SKYPILOT}/issues/7321",
        "a pod never leaves PROVISIONING",
        "it is ended at its limit, and replaced",
        (bad("rent", wait_timeout_s=1900), ok("reap")),
        lambda life: setattr(life.api, "boot_s", 1e6),
    ),
    Reported(
        "an id without a pod",
        "runpod",
        f"{SKYPILOT}/issues/7336",
        "create answers 201 with an id, and no pod is made",
        "it is given up after listings lack it for a while, and another one is ordered",
        (ok("rent"), then(lambda life: life.count_orders(1)), ok("teardown")),
        lambda life: life.api.reply("create", Answer(201, {"id": "dfpb14js8oc6z8", "name": "x"}), last=1),
    ),
    Reported(
        "terminated in the console while it starts",
        "runpod",
        f"{SKYPILOT}/issues/7318",
        "a pod is terminated by hand 20 seconds after its order",
        "another one is ordered",
        (ok("rent"), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: [
            setattr(life.api, "boot_s", 40.0),
            life.clock.later(20.0, lambda: end(life) if life.ours else None),
        ],
    ),
    Reported(
        "terminated in the console after it joined",
        "runpod",
        f"{SKYPILOT}/issues/4286",
        "a joined pod is terminated by hand",
        "rent replaces it alone, after a lasting absence",
        (ok("rent", 2), wait(600), then(end), ok("rent", 2), then(lambda life: life.count_orders(3)), ok("teardown")),
    ),
    Reported(
        "everything is gone already",
        "runpod",
        f"{SKYPILOT}/issues/632",
        "all pods were terminated by hand; deletes answer 404",
        "teardown proves it, with rc 0",
        (ok("rent", 2), wait(600), then(end), then(end), ok("teardown", says="absent_at")),
    ),
    Reported(
        "a pod restarts without GPUs",
        "runpod",
        "https://github.com/runpod/docs/pull/268",
        "a joined pod was restarted, and is listed with no GPU",
        "rent does not call the pool complete; the pod is kept and named",
        (
            ok("rent", 2),
            wait(600),
            then(lambda life: show(life, lambda item: {**item, "gpu": {"id": item["gpu"]["id"], "count": 0}})),
            bad("rent", "0 GPUs", 2),
            ok("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "the controller has no network",
        "runpod",
        f"{DSTACK}/issues/1551",
        "no call is answered for 40 minutes",
        "teardown and reap fail and name the pods; later they end",
        (
            ok("rent", 2),
            then(lambda life: all_calls(life, None, 2400)),
            bad("teardown", "lab-h100-0"),
            bad("reap"),
            wait(2400),
            ok("teardown"),
        ),
    ),
    Reported(
        "a container that restarts for ever",
        "runpod",
        f"{DSTACK}/issues/1142",
        "a pod's status changes between RUNNING and EXITED",
        "a pod that has exited is not ready",
        (maybe("rent"), ok("reap"), ok("teardown")),
        flap,
    ),
    Reported(
        "no instances, though the catalogue has them",
        "runpod",
        "https://github.com/runpod/runpodctl/issues/189",
        "create answers 400 'There are no longer any instances available'",
        "a lack of machines: it fails with that text, nothing is left",
        (bad("rent", "no longer any instances available", 2), ok("reap")),
        lambda life: life.api.reply(
            "create", error(400, "There are no longer any instances available with the requested specifications.")
        ),
    ),
    Reported(
        "a request that the server itself builds wrongly",
        "runpod",
        "https://github.com/runpod/runpod-plugins-official/issues/56",
        "every create answers 400 'Field objectMounts is not defined'",
        "one call, not a hail of them",
        (
            bad("rent", "objectMounts", capacity_wait_s=600),
            then(lambda life: life.count_calls("create", 1)),
            ok("reap"),
        ),
        lambda life: life.api.reply("create", error(400, "Field objectMounts is not defined by type")),
    ),
    Reported(
        "the balance is used up in the middle of a gang",
        "runpod",
        "https://github.com/PipedreamHQ/pipedream/issues/14304",
        "the second create answers 402",
        "the first pod is ended, the balance is named",
        (bad("rent", "402", 2), ok("reap")),
        lambda life: life.api.reply("create", error(402, "insufficient balance"), first=2),
    ),
    Reported(
        "deletes are throttled",
        "runpod",
        f"{DOCUMENT}: TooManyRequestsError with Retry-After",
        "deletes answer 429 with Retry-After 12 ten times",
        "they are repeated",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", error(429, "rate limit exceeded", **{"Retry-After": "12"}), last=10),
    ),
    Reported(
        "the members outlive their cluster",
        "runpod_cluster",
        f"{DOCUMENT}: 409 'Pod belongs to a cluster'",
        "deleting a cluster leaves its pods, whose deletes answer 409 for two minutes",
        "they are ended too",
        (ok("rent", 2), ok("teardown")),
        lambda life: [
            setattr(life.api, "strays", True),
            life.api.reply("delete", error(409, "Pod belongs to a cluster and cannot be terminated"), for_s=300),
        ],
    ),
    Reported(
        "a cluster with one pod less",
        "runpod_cluster",
        f"{SKYPILOT}/issues/502",
        "a cluster of two comes with one pod",
        "it is not called complete, and ends whole",
        (bad("rent", "", 2, wait_timeout_s=1900), ok("reap")),
        lambda life: show(life, lambda item: None if item["name"].endswith("-1") else item),
    ),
    Reported(
        "created, with an id of null",
        "runpod",
        "https://github.com/peters/horizon/pull/372",
        "create answers 201 with the id null, and the pod runs",
        "it is looked for by its name, and no id is invented",
        (
            ok("rent"),
            then(lambda life: life.count_orders(1)),
            ok("teardown"),
            then(lambda life: life.count_paths("None")),
        ),
        lambda life: life.api.reply("create", Answer(201, {"id": None, "name": "x"}), acts=True, last=1),
    ),
    Reported(
        "created, with an empty id",
        "runpod",
        "https://github.com/skypilot-org/skypilot/issues/7336",
        "create answers 201 with an empty id, and nothing is made",
        "nothing is deleted by an empty id",
        (maybe("rent"), ok("teardown"), then(lambda life: life.count_paths("/pods/$"))),
        lambda life: life.api.reply("create", Answer(201, {"id": "", "name": "x"}), last=1),
    ),
    Reported(
        "a pod with fewer GPUs than ordered",
        "runpod",
        "https://github.com/nodetool-ai/nodetool/pull/3773",
        "a pod for 8 GPUs runs with one",
        "it is not taken, and the offer is not tried again",
        (bad("rent", "GPU", candidate={"gpu_count": 8}, max_price_usd_per_hour=50.0), ok("reap")),
        lambda life: show(life, lambda item: {**item, "gpu": {"id": item["gpu"]["id"], "count": 1}}),
    ),
    Reported(
        "a key that may not list volumes",
        "runpod",
        f"{DOCUMENT}: ForbiddenError",
        "network volumes answer 403",
        "the pods are proved gone, and it is said that volumes are unknown",
        (ok("rent"), bad("teardown", "403"), CALM, ok("teardown")),
        lambda life: life.api.reply("leftovers", error(403, "access denied")),
    ),
    Reported(
        "a next page without a cursor",
        "runpod",
        "skypilot-nightly 1.0.0.dev20261027: cursor pagination",
        "the listing says hasNextPage with an empty cursor for ten minutes",
        "an incomplete listing proves nothing",
        (
            ok("rent"),
            then(
                lambda life: life.api.reply(
                    "list", Answer(200, {"pods": [], "pagination": {"nextCursor": "", "hasNextPage": True}}), for_s=1200
                )
            ),
            bad("teardown", "lab-h100-0"),
            wait(600),
            ok("teardown"),
        ),
    ),
    Reported(
        "Cloudflare blocks the deletes",
        "runpod",
        f"{DOCUMENT}, notes: Cloudflare 'error code: 1010'",
        "deletes answer 403 'error code: 1010' for twenty minutes",
        "the pod is named as billing, with that cause",
        (
            ok("rent"),
            then(lambda life: life.api.reply("delete", Answer(403, text="error code: 1010"), for_s=1200)),
            bad("teardown", "Cloudflare"),
            wait(1200),
            ok("teardown"),
        ),
    ),
    Reported(
        "the version of the API is retired",
        "runpod",
        f"{DOCUMENT}, notes: 410 Gone from 2026-11-15",
        "every call answers 410 Gone",
        "rent orders nothing; no pod is proved gone by it",
        (
            ok("rent", 2),
            then(lambda life: all_calls(life, error(410, "Gone"), 7200)),
            bad("teardown", "410"),
            bad("rent", "410", 3),
            CALM,
            ok("teardown"),
        ),
    ),
)
