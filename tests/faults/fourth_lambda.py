# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of Lambda Cloud of a fourth round, drawn from its document, issues and docs before any rule was looked at."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.fakes.api import Answer

from .reported_lambda import DOCUMENT, DSTACK, SKYPILOT, error, show
from .reported_world import CALM, Life, Reported, bad, maybe, ok, then, wait

OPERATIONS = ("list", "offers", "create", "delete", "list_keys", "add_key", "leftovers")
PAGE = Answer(200, None, {}, "<!doctype html><html><body>We will be back soon</body></html>")


def everything(life: Life, answer: Answer | None, seconds: float) -> None:
    for name in OPERATIONS:
        life.api.reply(name, answer, for_s=seconds)


def refuse_young(life: Life) -> None:
    """Refuse to terminate while an instance boots."""

    def before(operation: str) -> None:
        if operation == "delete" and not all(life.api.ready(item) for item in life.ours):
            life.api.reply("delete", error(400, "global/invalid-parameters", "vm-has-not-launched"), last=1)

    life.api.on_call = before


def boot_slowly(life: Life, seconds: float) -> None:
    life.api.boot_s = seconds
    refuse_young(life)


def take_while_booting(life: Life) -> None:
    """Let the owner end the first instance in the console five seconds after its launch."""
    waiting = [True]

    def before(operation: str) -> None:
        if waiting and life.ours:
            waiting.clear()
            thing = life.first
            life.clock.later(5.0, lambda: setattr(thing, "gone_at", life.clock.time()))

    life.api.on_call = before


def by_turns(life: Life, *statuses: str) -> None:
    count = iter(range(10**6))
    show(life, lambda item: {**item, "status": statuses[next(count) % len(statuses)]})


def nameless(life: Life, seconds: float) -> None:
    """List an instance without name, host name and tags for so long after its launch."""

    def change(item: dict[str, t.Any]) -> dict[str, t.Any]:
        young = life.clock.time() < life.api.things[item["id"]].made_at + seconds
        hidden = ("name", "hostname", "tags") if young else ()
        return {key: value for key, value in item.items() if key not in hidden}

    show(life, change)


def without(life: Life, *names: str) -> None:
    show(life, lambda item: {key: value for key, value in item.items() if key not in names})


def as_status(life: Life, status: str) -> None:
    """List the first instance with a status, whatever becomes of it."""
    key = life.first.id
    show(life, lambda item: {**item, "status": status} if item["id"] == key else item)


def remain_listed(life: Life) -> None:
    """Let the owner end the first instance, which is listed as terminated for an hour."""
    thing = life.first
    as_status(life, "terminated")
    thing.gone_at = life.clock.time()
    thing.hidden_at = life.clock.time() + 3600


def without_ids(life: Life) -> None:
    """Answer launches with no id; they take effect."""
    life.api.reply("create", Answer(200, {"data": {"instance_ids": []}}), acts=True)


def lose_and_refuse(life: Life) -> None:
    """Lose the answer of a launch that takes effect, and refuse the credential from then on."""
    life.api.reply("create", None, acts=True, last=1)
    armed = [True]

    def before(operation: str) -> None:
        if operation == "list" and life.ours and armed:
            armed.clear()
            life.api.reply("list", error(401, "global/invalid-api-key"), for_s=7200)

    life.api.on_call = before


def blind_after_delete(life: Life, answer: Answer, seconds: float) -> None:
    """Answer listings otherwise once something was terminated."""
    armed = [True]

    def before(operation: str) -> None:
        if operation == "list" and armed and any(item.ended_at for item in life.api.things.values()):
            armed.clear()
            life.api.reply("list", answer, for_s=seconds)

    life.api.on_call = before


def name_twice(life: Life) -> None:
    """List the first instance a second time, under another status."""

    def rewrite(operation: str, answer: Answer) -> Answer:
        if operation != "list" or answer.status != 200:
            return answer
        ours = [item for item in answer.data["data"] if item["id"] not in life.strangers]
        ghosts = [{**item, "status": "terminated"} for item in ours]
        return Answer(200, {"data": [*ghosts, *answer.data["data"]]})

    life.api.rewrite = rewrite


def copy_tags(life: Life) -> None:
    """Somebody duplicates our instance in the console: all but the name is copied, the tag with it."""
    ours = life.first
    life.api.make("copy of it", ssh_key_names=["bobs"], tags=list(ours.fields["tags"]), end="active")


LAMBDA = (
    Reported(
        "terminate names nothing as terminated",
        "lambda",
        f"{DOCUMENT}: InstanceTerminateResponse.terminated_instances",
        "for six minutes terminate answers 200 with an empty list and ends nothing",
        "the empty list is no end: it is repeated",
        (ok("rent", 2), ok("teardown")),
        lambda life: life.api.reply("delete", Answer(200, {"data": {"terminated_instances": []}}), for_s=400),
    ),
    Reported(
        "terminate is refused until an instance has launched",
        "lambda",
        f"{DOCUMENT}: InstanceActionUnavailableCode vm-has-not-launched; {DSTACK}/pull/2132",
        "instances boot for an hour, and until then terminate answers 400",
        "rent fails and names what it could not end; it is ended once that is possible",
        (bad("rent", count=2), maybe("teardown"), wait(3600), ok("teardown")),
        lambda life: boot_slowly(life, 3600.0),
    ),
    Reported(
        "an instance is preempted and stays listed",
        "lambda",
        f"{DOCUMENT}: InstanceStatus preempted",
        "one of two instances is listed as preempted, bills, and is never taken away",
        "it is ended by whoever gives up on it, and nothing is ordered beside it without a word",
        (ok("rent", 2), then(lambda life: as_status(life, "preempted")), maybe("rent", 2), wait(600), ok("teardown")),
    ),
    Reported(
        "the account becomes inactive",
        "lambda",
        f"{DOCUMENT}: ApiErrorAccountInactive",
        "every call answers 403 global/account-inactive for a day",
        "teardown, reap and the reaper fail and name the instances, and end them afterwards",
        (
            ok("rent", 2),
            then(
                lambda life: everything(life, error(403, "global/account-inactive", "Your account is inactive."), 9e4)
            ),
            bad("teardown"),
            bad("reap"),
            bad("reaper"),
            bad("rent", count=2),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "the billing address is refused for the second instance",
        "lambda",
        f"{DOCUMENT}: ApiErrorInvalidBillingAddress",
        "the first launch works, all later ones answer 400 global/invalid-address",
        "the first instance is given back, the address is named",
        (bad("rent", "address", count=2), ok("reap"), ok("teardown")),
        lambda life: life.api.reply("create", error(400, "global/invalid-address", "Bad billing address."), first=2),
    ),
    Reported(
        "somebody ends an instance while it boots",
        "lambda",
        f"{SKYPILOT}/issues/118",
        "five seconds after its launch the first instance is gone",
        "it is replaced within the limit, or rent says so",
        (maybe("rent", 2), ok("teardown")),
        take_while_booting,
    ),
    Reported(
        "healthy and unhealthy by turns",
        "lambda",
        f"{DOCUMENT}: InstanceStatus unhealthy; {SKYPILOT}/pull/1557",
        "every second listing shows every instance as unhealthy",
        "the orders stay within their limit, and nothing is left",
        (maybe("rent", 2), maybe("rent", 2), ok("teardown")),
        lambda life: by_turns(life, "active", "unhealthy"),
    ),
    Reported(
        "an instance without a name yet, and no answer to its launch",
        "lambda",
        f"{DOCUMENT}: Instance.name, tags are not required",
        "the launch's answer is lost, and for 100 s the instance is listed without name and tags",
        "it is found once it has its name, or ended; one order at a time",
        (maybe("rent"), ok("teardown")),
        lambda life: (nameless(life, 100.0), life.api.reply("create", None, acts=True, last=1)),
    ),
    Reported(
        "names and tags are never listed, and the launch is known",
        "lambda",
        f"{DOCUMENT}: Instance.name, tags are not required",
        "instances are listed by their id alone",
        "by an id alone nothing is touched: rent orders no more, fails and names them",
        (
            bad("rent", "not touched", count=2),
            then(lambda life: life.count_orders(2)),
            bad("teardown", "not touched"),
            CALM,
            ok("teardown"),
        ),
        lambda life: without(life, "name", "hostname", "tags"),
    ),
    Reported(
        "tags are not listed",
        "lambda",
        f"{DOCUMENT}: Instance.tags is not required",
        "no listing has tags, and the first launch's answer is lost",
        "the name finds it",
        (ok("rent", 2), then(lambda life: life.count_orders(2)), ok("teardown")),
        lambda life: (without(life, "tags"), life.api.reply("create", None, acts=True, last=1)),
    ),
    Reported(
        "the SSH key is gone when it launches",
        "lambda",
        f"{DOCUMENT}: ApiErrorLaunchResourceNotFound; {SKYPILOT}/issues/1836",
        "a colleague deletes the key: every launch answers 404 object-does-not-exist",
        "rent fails after a few launches and says what is missing",
        (bad("rent", "ssh key"), then(lambda life: life.count_calls("create", 4)), ok("teardown")),
        lambda life: life.api.reply("create", error(404, "global/object-does-not-exist", "ssh key does not exist")),
    ),
    Reported(
        "the quota ends a gang of three",
        "lambda",
        f"{DOCUMENT}: ApiErrorQuotaExceeded",
        "the third launch and all later ones answer 403 global/quota-exceeded",
        "two are given back, the quota is named",
        (bad("rent", "uota", count=3), ok("reap"), ok("teardown")),
        lambda life: life.api.reply("create", error(403, "global/quota-exceeded", "Quota exceeded."), first=3),
    ),
    Reported(
        "terminating for half an hour",
        "lambda",
        f"{SKYPILOT}/pull/3410",
        "an instance is terminating for 25 minutes, and bills",
        "it is not called gone before",
        (ok("rent", 2), maybe("teardown"), wait(1800), ok("teardown")),
        lambda life: setattr(life.api, "ending_s", 1500.0),
    ),
    Reported(
        "the API moved to another host",
        "lambda",
        "https://docs.lambda.ai/public-cloud/cloud-api: cloud.lambdalabs.com is deprecated, 301",
        "every call answers 301 to another host for an hour",
        "no credential goes there, teardown fails and names the instances",
        (
            ok("rent", 2),
            then(lambda life: everything(life, Answer(301, None, {"Location": "https://192.0.2.1/api/v1/x"}), 3600.0)),
            bad("teardown"),
            bad("reap"),
            CALM,
            ok("teardown"),
        ),
    ),
    Reported(
        "a maintenance page in place of the listing after the delete",
        "lambda",
        f"{DSTACK}/issues/3453: provider API downtime",
        "once something was terminated, listings answer 200 with a web page for an hour",
        "the page proves nothing: teardown fails, and proves it later",
        (ok("rent", 2), bad("teardown"), wait(3600), ok("teardown")),
        lambda life: blind_after_delete(life, PAGE, 3600.0),
    ),
    Reported(
        "no address ever comes",
        "lambda",
        f"{SKYPILOT}/issues/1678",
        "active instances are listed without ip",
        "they are given back, and rent says what they lack",
        (bad("rent", "address"), ok("teardown")),
        lambda life: without(life, "ip", "private_ip"),
    ),
    Reported(
        "a Retry-After that has passed",
        "lambda",
        "https://www.rfc-editor.org/rfc/rfc9110#name-retry-after: HTTP-date",
        "three launches answer 429 with a Retry-After date of years ago",
        "the launches are not fired at once without end",
        (ok("rent"), then(lambda life: life.count_calls("create", 4)), ok("teardown")),
        lambda life: life.api.reply(
            "create",
            Answer(
                429,
                {"error": {"code": "global/too-many-requests", "message": "slow down", "suggestion": "none"}},
                {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"},
            ),
            last=3,
        ),
    ),
    Reported(
        "an instance that ended is listed for an hour",
        "lambda",
        f"{DOCUMENT}: InstanceStatus terminated; https://github.com/artilleryio/chaos-lambda/issues/23",
        "an instance that its owner ended is listed as terminated for an hour",
        "it bills nothing: reap is calm, rent replaces it, teardown is proved within the hour",
        (ok("rent", 2), then(remain_listed), ok("reap"), ok("rent", 2), wait(300), ok("teardown")),
    ),
    Reported(
        "launch answers without an id",
        "lambda",
        f"{DOCUMENT}: InstanceLaunchResponse.instance_ids may be empty",
        "every launch takes effect and answers an empty list of ids",
        "the token finds each; none is left",
        (maybe("rent", 2), ok("teardown")),
        without_ids,
    ),
    Reported(
        "no answer to a launch, then the key is refused",
        "lambda",
        f"{SKYPILOT}/issues/4605; {SKYPILOT}/issues/8411",
        "the launch takes effect without an answer, and listings answer 401 for two hours",
        "rent fails and names the order that may bill",
        (bad("rent", "cannot be listed"), wait(7200), ok("teardown")),
        lose_and_refuse,
    ),
    Reported(
        "the key is refused once the delete was accepted",
        "lambda",
        f"{SKYPILOT}/issues/4605",
        "after the first terminate every listing answers 403 for two hours",
        "nothing is called gone that no listing showed to be",
        (
            ok("rent", 2),
            then(lambda life: setattr(life.api, "ending_s", 1200.0)),
            bad("teardown"),
            bad("reaper"),
            wait(7200),
            ok("teardown"),
        ),
        lambda life: blind_after_delete(life, error(403, "global/invalid-api-key"), 7200.0),
    ),
    Reported(
        "an instance is listed twice, once as terminated",
        "lambda",
        f"{SKYPILOT}/issues/7205: the old and the new record of one name",
        "every listing has each of ours twice, first as terminated",
        "what is listed as running bills, whatever else is said of it",
        (maybe("rent", 2), maybe("teardown"), CALM, ok("teardown")),
        name_twice,
    ),
    Reported(
        "a second instance bears our tag, under another name",
        "lambda",
        f"{DSTACK}/issues/3453: many share one account",
        "our instance is copied with its tags and renamed",
        "the tag is ownership (guide_renting): it is ended as the second one of its order, and not paid for",
        (ok("rent", 2), then(copy_tags), ok("rent", 2), maybe("reap"), ok("teardown")),
    ),
)
