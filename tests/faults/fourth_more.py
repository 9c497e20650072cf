# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a fourth round that no earlier one had by kind: odd endpoints and shapes, counts, changes of mind."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from . import reported_lambda, reported_runpod, reported_shadeform, reported_vastai
from .fourth_shadeform import each as each_instance
from .fourth_vastai import each as each_rental
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

SKYPILOT = "https://github.com/skypilot-org/skypilot"
DSTACK = "https://github.com/dstackai/dstack"
DOCS = "https://docs.runpod.io"
VAST = reported_vastai.DOCUMENT
RUNPOD = reported_runpod.DOCUMENT
LAMBDA = reported_lambda.DOCUMENT
SHADE = reported_shadeform.DOCUMENT
JSON = dict[str, t.Any]


def pods(life: Life, change: t.Callable[[JSON], JSON]) -> None:
    reported_runpod.show(life, change)


def instances(life: Life, change: t.Callable[[JSON], JSON]) -> None:
    reported_lambda.show(life, change)


def direct(item: JSON, **values: t.Any) -> JSON:
    """Return a pod with other values of its endpoint."""
    shown = item["ssh"]["direct"]
    return {**item, "ssh": {"proxy": None, "direct": {**shown, **values}}} if shown else item


def price_late(life: Life, later: float) -> None:
    """Bill nothing while pods start and in their first ten minutes, then ``later``."""

    def change(item: JSON) -> JSON:
        young = life.clock.time() < life.api.things[item["id"]].made_at + 600
        return {**item, "cost": 0.0 if young else later}

    pods(life, change)


def add_member(life: Life) -> None:
    """Let a cluster have one pod more than was ordered."""
    cluster = next(item for item in life.ours if item.fields["kind"] == "cluster")
    member = next(item for item in life.ours if item.fields.get("cluster"))
    made = life.api.make(f"{cluster.name}-2", **{**member.fields, "rank": 2})
    made.boot_s = 0.0
    cluster.fields["compute"] = {**cluster.fields["compute"], "podCount": 3}


def one_other(life: Life, gpu: JSON) -> None:
    """Give the second member of a cluster another GPU."""
    pods(life, lambda item: {**item, "gpu": gpu} if (item.get("cluster") or {}).get("rank") == 1 else item)


def an_orphan(life: Life) -> None:
    """Let something with a name of our cluster appear that no ledger has."""
    life.strangers.append(life.api.make("lab-h100-7-0badf00d", **life.first.fields).id)


def race(life: Life) -> None:
    """Somebody deletes everything of ours in the console at the moment of our first delete."""

    def before(operation: str) -> None:
        if operation == "delete":
            for item in life.ours:
                item.gone_at = life.clock.time()

    life.api.on_call = before


def other_ledger(life: Life) -> None:
    """Restore the ledger of another day: it knows an order that never was, and none of ours."""
    path = life.state / "ledger.jsonl"
    lines = path.read_text().splitlines()
    token = life.first.name.rpartition("-")[2]
    path.write_text("\n".join(line.replace(token, "0ddba11e") for line in lines) + "\n")


def forbid_deletes(life: Life, seconds: float) -> None:
    life.api.reply("delete", life.api.error(403, "forbidden"), for_s=seconds)


def deletes_forget(life: Life, seconds: float) -> None:
    """Accept deletes and carry none out for a while."""
    whole, until = life.api.end, life.clock.time() + seconds
    life.api.end = lambda thing: whole(thing) if life.clock.time() >= until else None


MORE = (
    Reported(
        "an address with a line's end",
        "vastai",
        f"{DSTACK}, vastai/compute.py: resp['public_ipaddr'].strip()",
        "public_ipaddr ends with a space and a newline",
        "the address is used without them",
        (ok("rent", 2, '"203.0.113.42"'), ok("teardown")),
        lambda life: each_rental(
            life,
            lambda row: {**row, "public_ipaddr": row["public_ipaddr"] + " \n"} if row.get("public_ipaddr") else row,
        ),
    ),
    Reported(
        "an address that is a command",
        "vastai",
        f"{VAST}: public_ipaddr is free text of a host",
        "public_ipaddr is '-oProxyCommand=reboot'",
        "it is no address; the instance is given back, or reached by its proxy",
        (maybe("rent"), ok("teardown")),
        lambda life: each_rental(life, lambda row: {**row, "public_ipaddr": "-oProxyCommand=reboot"}),
    ),
    Reported(
        "a port that is none",
        "vastai",
        f"{VAST}: ports",
        "HostPort is 0, and the proxy's port is 70000",
        "nothing is called ready without an address",
        (bad("rent"), ok("teardown")),
        lambda life: each_rental(
            life, lambda row: {**row, "ports": {"22/tcp": [{"HostPort": "0"}]}, "ssh_host": "", "ssh_port": 70000}
        ),
    ),
    Reported(
        "an on-demand order that became a bid",
        "vastai",
        f"{VAST}: is_bid; interruptible instances stop when outbid",
        "instances are listed with is_bid true",
        "what can be taken away at any moment is told so",
        (maybe("rent", 2), ok("teardown")),
        lambda life: each_rental(life, lambda row: {**row, "is_bid": True}),
    ),
    Reported(
        "a running instance without a price",
        "vastai",
        f"{VAST}: dph_total",
        "dph_total is null",
        "the offer's price counts, and caps hold",
        (bad("rent", count=2, max_total_usd_per_hour=3.0), ok("rent", 2), ok("teardown")),
        lambda life: each_rental(life, lambda row: {**row, "dph_total": None}),
    ),
    Reported(
        "a stop is intended while it runs",
        "vastai",
        f"{VAST}: intended_status",
        "actual_status is running, intended_status stopped, from the first listing on",
        "it is not called ready, or it is used and ended; nothing is left",
        (maybe("rent", 2), ok("teardown")),
        lambda life: each_rental(life, lambda row: {**row, "intended_status": "stopped", "next_state": "stopped"}),
    ),
    Reported(
        "an endpoint by name",
        "runpod",
        f"{RUNPOD}: PodSshEndpoint.host",
        "the host of ssh.direct is a name, not an address",
        "it is used or refused, and said; nothing is left",
        (maybe("rent", 2), ok("teardown")),
        lambda life: pods(life, lambda item: direct(item, host="pod.example.net")),
    ),
    Reported(
        "an endpoint that is an option",
        "runpod",
        f"{RUNPOD}: PodSshEndpoint.host, username",
        "the host is '-lroot' and the user 'root -oX=y'",
        "nothing of it reaches a command line",
        (bad("rent"), ok("teardown")),
        lambda life: pods(life, lambda item: direct(item, host="-lroot", username="root -oX=y")),
    ),
    Reported(
        "the price is known late",
        "runpod",
        f"{RUNPOD}: Pod.cost; {DSTACK}/issues/1886",
        "pods cost 0 for their first ten minutes, then five times the cap",
        "the second rent names it and orders nothing",
        (
            ok("rent", 2),
            wait(900),
            bad("rent", "more than the cap", count=2),
            then(lambda life: life.count_orders(2)),
            ok("teardown"),
        ),
        lambda life: price_late(life, 25.0),
    ),
    Reported(
        "the spend limit of the account",
        "runpod",
        f"{DOCS}/pods/pricing: spend limit of 80 USD per hour",
        "the second order and all later ones answer 400 'spend limit exceeded'",
        "the first is given back, the limit is named",
        (bad("rent", "spend limit", count=2), ok("reap"), ok("teardown")),
        lambda life: life.api.reply("create", reported_runpod.error(400, "account spend limit exceeded"), first=2),
    ),
    Reported(
        "a name with something added",
        "runpod",
        f"{DOCS}/pods/manage-pods: migrated pods are named NAME-migration",
        "after an hour every pod's name ends in -migration",
        "they are ours all the same, and no other is ordered",
        (
            ok("rent", 2),
            wait(3600),
            then(lambda life: pods(life, lambda item: {**item, "name": f"{item['name']}-migration"})),
            ok("rent", 2),
            then(lambda life: life.count_orders(2)),
            ok("teardown"),
        ),
    ),
    Reported(
        "a data centre that was closed since the catalogue",
        "runpod",
        f"{RUNPOD}: POST /pods 404",
        "orders answer 404 'data center not found'",
        "rent fails in a few orders and says so",
        (bad("rent", "data center"), then(lambda life: life.count_calls("create", 4)), ok("teardown")),
        lambda life: life.api.reply("create", reported_runpod.error(404, "data center not found")),
    ),
    Reported(
        "one machine more than was ordered",
        "runpod_cluster",
        f"{DOCS}/instant-clusters: pods can be added in the console",
        "somebody adds a pod to the cluster",
        "it bills in the total, and goes with the cluster",
        (
            ok("rent", 2),
            then(add_member),
            maybe("rent", 2),
            bad("rent", "max_total_usd_per_hour", count=2, max_total_usd_per_hour=7.0),
            ok("teardown"),
        ),
    ),
    Reported(
        "a cluster that should grow",
        "runpod_cluster",
        f"{DOCS}/instant-clusters: the shape cannot be changed",
        "three machines are asked for where a cluster of two runs",
        "two are not called three",
        (ok("rent", 2), bad("rent", count=3), ok("teardown")),
    ),
    Reported(
        "one member of another kind",
        "runpod_cluster",
        f"{RUNPOD}: ClusterCompute; {SKYPILOT}/issues/7084",
        "the second member is listed with an A40",
        "the cluster is given back, and rent says so",
        (bad("rent", "A40", count=2), ok("teardown")),
        lambda life: one_other(life, {"id": "NVIDIA A40", "count": 1}),
    ),
    Reported(
        "ids as a text",
        "lambda",
        f"{LAMBDA}: instance_ids",
        "launches take effect and answer a text in place of the list of ids",
        "the token finds them",
        (maybe("rent", 2), ok("teardown")),
        lambda life: life.api.reply(
            "create", Answer(200, {"data": {"instance_ids": "0920582c7ff041399e34823a0be62549"}}), acts=True
        ),
    ),
    Reported(
        "an instance without a type",
        "lambda",
        f"{LAMBDA}: Instance.instance_type",
        "instances are listed with instance_type null",
        "the offer's price counts; nothing crashes",
        (bad("rent", count=2, max_total_usd_per_hour=3.0), maybe("rent", 2), ok("teardown")),
        lambda life: instances(life, lambda item: {**item, "instance_type": None}),
    ),
    Reported(
        "fewer are wanted, and the rest cannot be deleted",
        "lambda",
        f"{SKYPILOT}/issues/4605",
        "three are rented, then one is wanted; deletes answer 403 for an hour",
        "rent does not end well while two bill that nobody wants",
        (
            ok("rent", 3),
            then(lambda life: forbid_deletes(life, 3600)),
            bad("rent", count=1, shrink=True),
            wait(3600),
            ok("rent", 1, shrink=True),
            then(lambda life: life.count_orders(3)),
            ok("teardown"),
        ),
    ),
    Reported(
        "fewer are wanted, and deletes are forgotten",
        "lambda",
        f"{SKYPILOT}/pull/4443: a successful request need not terminate",
        "three are rented, then one is wanted; deletes are accepted and not carried out for an hour",
        "the two that bill are named",
        (
            ok("rent", 3),
            then(lambda life: deletes_forget(life, 3600)),
            bad("rent", count=1, shrink=True),
            wait(3600),
            ok("rent", 1, shrink=True),
            ok("teardown"),
        ),
    ),
    Reported(
        "more are wanted while the account cannot be listed",
        "lambda",
        f"{SKYPILOT}/issues/10517: a storm of launches",
        "two are rented, then four are wanted; listings answer 500",
        "nothing is ordered",
        (
            ok("rent", 2),
            then(lambda life: life.api.reply("list", reported_lambda.UNKNOWN, for_s=7200)),
            bad("rent", count=4),
            then(lambda life: life.count_orders(2)),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "somebody tidies up at the same moment",
        "lambda",
        f"{SKYPILOT}/issues/632; {DSTACK}/issues/3031",
        "all instances are ended in the console when our first terminate arrives",
        "what is gone is gone: teardown is proved",
        (ok("rent", 3), then(race), ok("teardown")),
    ),
    Reported(
        "something with our cluster's name, and no entry",
        "lambda",
        f"{DSTACK}/issues/3453: never terminate what is not known",
        "an instance of our form appears that the ledger does not have",
        "nothing is ordered beside it, every command names it, none ends it without consent",
        (
            ok("rent", 2),
            then(an_orphan),
            bad("rent", "lab-h100-7-0badf00d", count=3),
            bad("reap", "lab-h100-7-0badf00d"),
            bad("reaper", "lab-h100-7-0badf00d"),
            bad("teardown", "lab-h100-7-0badf00d"),
            then(lambda life: setattr(life.api.things[life.strangers.pop()], "gone_at", life.clock.time())),
            ok("teardown"),
        ),
    ),
    Reported(
        "the ledger of another day",
        "lambda",
        "https://github.com/hashicorp/terraform/issues/30266: an older state is written back",
        "the ledger is replaced: it has an order that never was, and not the one that runs",
        "what runs is named and nothing is ordered beside it",
        (
            ok("rent"),
            then(other_ledger),
            bad("rent"),
            then(lambda life: life.count_orders(1)),
            bad("teardown"),
            then(lambda life: setattr(life.first, "gone_at", life.clock.time())),
            ok("teardown"),
        ),
    ),
    Reported(
        "a region that is sold out between the list and the order",
        "shadeform",
        f"{SHADE}: availability; {SKYPILOT}, shadeform/instance.py",
        "creates answer 409 'region is not available'",
        "rent fails in a few calls and says so",
        (bad("rent", "not available"), then(lambda life: life.count_calls("create", 5)), ok("teardown")),
        lambda life: life.api.reply("create", reported_shadeform.error(409, "region canada-1 is not available")),
    ),
    Reported(
        "the key was deleted in the console",
        "shadeform",
        f"{SHADE}: ssh_key_id",
        "creates answer 400 'unknown ssh key'",
        "rent fails and says so, nothing is made",
        (bad("rent", "ssh key"), then(lambda life: life.count_orders(0)), ok("teardown")),
        lambda life: life.api.reply("create", reported_shadeform.error(400, "unknown ssh key")),
    ),
    Reported(
        "no user and no port",
        "shadeform",
        f"{SHADE}: ssh_user, ssh_port are not required",
        "active instances are listed without user and port",
        "they are used by the defaults or given back; nothing is left",
        (maybe("rent", 2), ok("teardown")),
        lambda life: each_instance(life, lambda row: {**row, "ssh_user": None, "ssh_port": None}),
    ),
)
