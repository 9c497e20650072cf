# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a fourth round about leases in time: extended, too short, ended by the server, rented again at once."""

from __future__ import annotations

from . import reported_lambda, reported_runpod, reported_shadeform
from .fourth_cluster import drop_member
from .fourth_vastai import each as each_rental
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

SKYPILOT = "https://github.com/skypilot-org/skypilot"
DSTACK = "https://github.com/dstackai/dstack"


def alive(life: Life, count: int) -> None:
    """Note another number of machines of ours that bill."""
    if len(life.ours) != count:
        life.problems.append(f"{len(life.ours)} bill, {count} expected")


TIMES = (
    Reported(
        "a lease that is over before it is complete",
        "lambda",
        f"{DSTACK}/issues/955: no termination policy",
        "the lease is five minutes, the machines boot for ten",
        "reap ends them",
        (maybe("rent", 2, lease_s=300), wait(300), ok("reap"), then(lambda life: alive(life, 0)), ok("teardown")),
        lambda life: setattr(life.api, "boot_s", 600.0),
    ),
    Reported(
        "a lease that is extended in time",
        "lambda",
        f"{DSTACK}/issues/1047",
        "after fifty minutes of an hour another hour is asked for",
        "reap ends nothing at the first deadline, and all at the second",
        (
            ok("rent", 2, lease_s=3600),
            wait(3000),
            ok("rent", 2, lease_s=3600),
            wait(1000),
            ok("reap"),
            then(lambda life: alive(life, 2)),
            wait(3000),
            ok("reap"),
            then(lambda life: alive(life, 0)),
            ok("teardown"),
        ),
    ),
    Reported(
        "an extension that fails",
        "lambda",
        f"{DSTACK}/issues/1047",
        "the account cannot be listed when another hour is asked for",
        "the first deadline holds",
        (
            ok("rent", 2, lease_s=3600),
            wait(3000),
            then(lambda life: life.api.reply("list", reported_lambda.UNKNOWN, for_s=300)),
            bad("rent", count=2, lease_s=7200),
            wait(1000),
            ok("reap"),
            then(lambda life: alive(life, 0)),
            ok("teardown"),
        ),
    ),
    Reported(
        "the server's deadline does not move with the lease",
        "shadeform",
        f"{reported_shadeform.DOCUMENT}: AutoDelete is given at creation",
        "a lease of an hour is extended by two; the server ends the machines at its first deadline",
        "what has ended is not called ready; a later rent orders anew, and all ends",
        (
            ok("rent", 2, lease_s=3600),
            wait(3000),
            maybe("rent", 2, lease_s=7200),
            wait(3600),
            maybe("rent", 2, lease_s=7200),
            maybe("reap"),
            ok("teardown"),
        ),
    ),
    Reported(
        "rented again while the last ones are terminating",
        "lambda",
        f"{SKYPILOT}/issues/7205",
        "termination takes ten minutes; the same pool is rented again at once",
        "the last ones are proved gone or named, and are not counted as the new ones",
        (
            ok("rent", 2),
            then(lambda life: setattr(life.api, "ending_s", 600.0)),
            maybe("teardown"),
            ok("rent", 2),
            then(lambda life: life.count_orders(4)),
            ok("teardown"),
        ),
    ),
    Reported(
        "the reaper comes while a rent waits",
        "runpod",
        f"{DSTACK}/issues/2068",
        "the lease of a pool passes, and it is rented again before anybody has reaped",
        "the new deadline holds: what is used is not ended",
        (
            ok("rent", 2, lease_s=600),
            wait(900),
            ok("rent", 2, lease_s=3600),
            ok("reap"),
            then(lambda life: alive(life, 2)),
            ok("teardown"),
        ),
    ),
    Reported(
        "an endpoint never comes",
        "runpod",
        f"{reported_runpod.DOCUMENT}: ssh.direct is null until a port is assigned",
        "pods run and have no endpoint",
        "they are given back, and rent says what they lack",
        (bad("rent", "without an address"), ok("teardown")),
        lambda life: reported_runpod.show(life, lambda item: {**item, "ssh": {"proxy": None, "direct": None}}),
    ),
    Reported(
        "a bait below the cap",
        "vastai",
        f"{SKYPILOT}, vast/utils.py",
        "offers of 2 USD bill 4.50, below the cap of a machine and above that of the pool",
        "the pool's cap holds",
        (bad("rent", "price caps", count=2, max_total_usd_per_hour=6.0), ok("teardown")),
        lambda life: each_rental(life, lambda row: {**row, "dph_total": 4.5}),
    ),
    Reported(
        "healing a cluster that lost a member",
        "runpod_cluster",
        f"{reported_runpod.DOCUMENT}: PodCluster",
        "a member dies in mid-run, and heal is asked to replace it",
        "the cluster is not called whole with one node",
        (ok("rent", 2), wait(300), then(drop_member), maybe("heal", 2), maybe("rent", 2), ok("teardown")),
    ),
    Reported(
        "the first is bad, and none may be replaced",
        "lambda",
        f"{reported_lambda.DOCUMENT}: InstanceStatus unhealthy",
        "the first instance is unhealthy, max_replacements is 0",
        "both are given back",
        (
            bad("rent", "max_replacements", count=2, max_replacements=0),
            then(lambda life: alive(life, 0)),
            ok("teardown"),
        ),
        lambda life: setattr(life.api, "statuses", ["unhealthy"] * 3),
    ),
    Reported(
        "the account is away at the deadline",
        "lambda",
        f"{DSTACK}/issues/1551: the network is off",
        "for a day from the deadline on no call is answered",
        "every reap and the reaper fail and name the machines; they end when the network is back",
        (
            ok("rent", 2, lease_s=3600),
            wait(3600),
            then(lambda life: [life.api.reply(name, None, for_s=86400) for name in ("list", "delete")]),
            bad("reap"),
            bad("reaper"),
            wait(43200),
            bad("reaper"),
            CALM,
            ok("reaper"),
            then(lambda life: alive(life, 0)),
            ok("teardown"),
        ),
    ),
)
