# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of RunPod's Instant Clusters of a fourth round, drawn before any rule was looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from .fourth_runpod import BELLHOP
from .reported_runpod import DOCUMENT, error, show
from .reported_world import CALM, Life, Reported, maybe, ok, then, wait


def ranks(life: Life, number: int | None) -> None:
    """Give every member of a cluster the same rank."""

    def change(item: dict[str, t.Any]) -> dict[str, t.Any]:
        return {**item, "cluster": {**item["cluster"], "rank": number}} if item.get("cluster") else item

    show(life, change)


def drop_member(life: Life) -> None:
    """Let one member of the cluster die."""
    member = next(item for item in life.ours if item.fields.get("cluster"))
    member.gone_at = life.clock.time()


def members_out(life: Life, seconds: float) -> None:
    """Forget ``includeClusterPods`` for a while: members are not listed."""
    until = life.clock.time() + seconds
    show(life, lambda item: None if item.get("cluster") and life.clock.time() < until else item)


def list_as_plain(life: Life) -> None:
    """List members without their cluster, as v1 did."""
    show(life, lambda item: {key: value for key, value in item.items() if key != "cluster"})


def count_again(life: Life) -> None:
    """A cluster's listing is empty while its pods are listed."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        return Answer(200, {"clusters": []}) if operation == "list_clusters" and answer.status == 200 else answer

    life.api.rewrite = rewrite


CLUSTERS = (
    Reported(
        "a cluster without one of its members",
        "runpod_cluster",
        f"{DOCUMENT}: ClusterPodsSummary",
        "a member dies once the cluster was complete",
        "the second rent does not call it complete: it is given up after its time, and ordered again",
        (
            ok("rent", 2),
            then(drop_member),
            ok("rent", 2),
            # A cluster and its two pods, twice.
            then(lambda life: life.count_orders(6)),
            ok("teardown"),
        ),
    ),
    Reported(
        "ranks never come",
        "runpod_cluster",
        f"{DOCUMENT}: PodCluster.rank may be null",
        "members run and have no rank",
        "the cluster is given back, and rent says so",
        (maybe("rent", 2), ok("teardown")),
        lambda life: ranks(life, None),
    ),
    Reported(
        "two members with one rank",
        "runpod_cluster",
        f"{DOCUMENT}: PodCluster.rank",
        "every member has rank 0",
        "the cluster is not called ready with two heads",
        (maybe("rent", 2), ok("teardown")),
        lambda life: ranks(life, 0),
    ),
    Reported(
        "members are left out of the listing",
        "runpod_cluster",
        f"{DOCUMENT}: includeClusterPods; {BELLHOP}",
        "the cluster is deleted, its pods bill and are not listed for half an hour",
        "absence of a cluster is not absence of its pods for longer than a listing may lag",
        (
            ok("rent", 2),
            then(lambda life: (setattr(life.api, "strays", True), members_out(life, 30))),
            maybe("teardown"),
            wait(3600),
            maybe("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "members are listed as plain pods",
        "runpod_cluster",
        f"{BELLHOP}; v1 records had no linkage",
        "the cluster is deleted without its pods, which are listed without a word of a cluster",
        "their names are ours: they are ended",
        (
            ok("rent", 2),
            then(lambda life: (setattr(life.api, "strays", True), list_as_plain(life))),
            maybe("teardown"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "the cluster is not listed, its pods are",
        "runpod_cluster",
        BELLHOP,
        "GET /clusters is empty from the start",
        "what bills is ended by the pods' listing",
        (maybe("rent", 2), maybe("teardown"), CALM, ok("teardown")),
        count_again,
    ),
    Reported(
        "a cluster that was throttled and made",
        "runpod_cluster",
        f"{DOCUMENT}: POST /clusters 429",
        "two creates answer 429 and take effect",
        "the first is found before a third is ordered",
        (maybe("rent", 2), ok("teardown")),
        lambda life: life.api.reply(
            "create_cluster", error(429, "too many requests", **{"Retry-After": "2"}), acts=True, last=2
        ),
    ),
)
