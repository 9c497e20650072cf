# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fourth round's faults of a tailnet's keys and devices, which are given back as machines are."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.muster.training.tests.fakes.api import Answer, Thing
from ansible_collections.muster.training.tests.fakes.cycle import PRODUCTS, Cycle, Server
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

TAILSCALE = "https://github.com/tailscale/tailscale"
DOCUMENT = "Tailscale API v2, openapi.json"
FIGURES: collections.Counter[str] = collections.Counter()
JSON = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class KeyFault:
    """A fault at the tailnet: ``arm`` from the start, ``then`` once a key was minted and its machines have joined."""

    name: str
    source: str
    does: str
    holds: str
    arm: Callable[[Cycle], object] = lambda _cycle: None
    then: Callable[[Cycle], object] = lambda _cycle: None


def api_of(cycle: Cycle) -> FakeTailscale:
    return t.cast(FakeTailscale, cycle.api)


def rows(cycle: Cycle, operation: str, key: str, change: Callable[[JSON], JSON | None]) -> None:
    """List as ``change`` returns each entry."""

    def rewrite(name: str, answer: Answer) -> Answer:
        if name != operation or answer.status != 200:
            return answer
        listed = [change(item) for item in answer.data[key]]
        return Answer(200, {key: [item for item in listed if item is not None]})

    cycle.api.rewrite = rewrite


def refuse(cycle: Cycle, status: int, message: str, seconds: float, *names: str) -> None:
    for name in names:
        cycle.api.reply(name, cycle.api.error(status, message), for_s=seconds)


def devices(cycle: Cycle) -> list[Thing]:
    return [item for item in cycle.ours if item.fields["kind"] == "device"]


def use_up(cycle: Cycle) -> None:
    """A one-off key is gone once it was used."""
    for item in cycle.ours:
        if item.fields["kind"] == "key":
            item.gone_at = cycle.clock.time()


def leave(cycle: Cycle) -> None:
    """Ephemeral devices log out."""
    for item in devices(cycle):
        item.gone_at = cycle.clock.time()


def come_again(cycle: Cycle) -> None:
    """A device re-registers under another id and with -1 at the end of its name."""
    old = devices(cycle)[0]
    old.fields["online"] = False
    api_of(cycle).device(old.name, label=f"{old.name}-1")


def share_in(cycle: Cycle) -> None:
    """Somebody shares a device of our host name into the tailnet; it is not ours to delete."""
    made = api_of(cycle).device(devices(cycle)[0].name, external=True, tags=[])
    cycle._strangers.append(made.id)


def late_device(cycle: Cycle) -> None:
    """A machine that held the key joins half a minute after the teardown has begun."""
    name = devices(cycle)[0].name
    cycle.clock.later(30.0, lambda: t.cast(None, api_of(cycle).device(name)))


def without_secret(cycle: Cycle) -> None:
    def rewrite(name: str, answer: Answer) -> Answer:
        if name != "create" or answer.status != 200:
            return answer
        return Answer(200, {key: value for key, value in answer.data.items() if key != "key"})

    cycle.api.rewrite = rewrite


KEY_FAULTS = (
    KeyFault(
        "a key is minted and the answer is a 500",
        f"{DOCUMENT}: POST keys 500; https://github.com/transformerlab/transformerlab-app/pull/2305",
        "the key exists, nobody knows its secret",
        "it is revoked",
        lambda cycle: cycle.api.reply("create", cycle.api.error(500, "internal"), acts=True, last=1),
    ),
    KeyFault(
        "a key without its secret",
        f"{DOCUMENT}: Key.key is only populated at creation",
        "the answer has an id and no key",
        "it is revoked, and the minting fails",
        without_secret,
    ),
    KeyFault(
        "keys are listed by id alone",
        f"{DOCUMENT}: GET keys returns ids; {TAILSCALE}/issues/11422",
        "listed keys have no description",
        "the id of the answer is enough",
        lambda cycle: rows(cycle, "list_keys", "keys", lambda item: {"id": item["id"]}),
    ),
    KeyFault(
        "a one-off key is gone once it was used",
        f"{DOCUMENT}: reusable false",
        "the key is neither listed nor known to deletes",
        "its absence is proved",
        then=use_up,
    ),
    KeyFault(
        "devices are null",
        f"{DOCUMENT}: GET devices",
        "the listing answers devices null for twenty minutes",
        "null is no proof of absence",
        then=lambda cycle: cycle.api.reply("list", Answer(200, {"devices": None}), for_s=1200),
    ),
    KeyFault(
        "the client may not delete devices",
        f"{TAILSCALE}/issues/11422: scopes of OAuth clients",
        "deletes of devices answer 403 for ten minutes",
        "teardown is not clean, and names them",
        then=lambda cycle: refuse(cycle, 403, "not allowed: devices:core", 600, "delete"),
    ),
    KeyFault(
        "the token expires between two calls",
        f"{TAILSCALE}-client-go-v2, oauth.go: tokens last an hour",
        "every call answers 401 for ten minutes",
        "nothing is called gone meanwhile",
        then=lambda cycle: refuse(
            cycle, 401, "API token invalid", 600, "list", "list_keys", "delete", "delete_key", "get"
        ),
    ),
    KeyFault(
        "ephemeral devices left by themselves",
        f"{TAILSCALE}/issues/4798: logout removes at once",
        "the devices are gone before the teardown",
        "the teardown is clean",
        then=leave,
    ),
    KeyFault(
        "ephemeral devices stay for days",
        f"{TAILSCALE}/issues/8306",
        "the devices are offline and stay",
        "they are removed",
        then=lambda cycle: [item.fields.update(online=False) for item in devices(cycle)],
    ),
    KeyFault(
        "a device comes again under another id",
        f"{TAILSCALE}/issues/3741; {TAILSCALE}/issues/8844",
        "the same host name twice, the second with -1",
        "both are removed",
        then=come_again,
    ),
    KeyFault(
        "a shared device with our name",
        f"{DOCUMENT}: Device.isExternal",
        "somebody shares a device of the same host name into the tailnet",
        "it is not touched",
        then=share_in,
    ),
    KeyFault(
        "a machine joins while the teardown runs",
        f"{TAILSCALE}/issues/4547: a key lives on until it is revoked",
        "a device appears half a minute after the teardown has begun",
        "the reaper removes it at the latest",
        then=late_device,
    ),
    KeyFault(
        "a revoked key stays listed",
        "juanfont/headscale, hscontrol/api/v2/keys.go: DELETE is a soft revoke",
        "the key is listed as invalid for ever",
        "invalid is gone",
        lambda cycle: setattr(cycle.api, "soft", True),
    ),
    KeyFault(
        "minting is throttled",
        f"{DOCUMENT}: 429 too many requests, no Retry-After",
        "two mintings answer 429",
        "one key at the end, and it is revoked",
        lambda cycle: cycle.api.reply("create", cycle.api.error(429, "too many requests"), last=2),
    ),
)


@pytest.mark.parametrize("case", KEY_FAULTS, ids=lambda case: case.name)
def test_a_fault_of_keys_and_devices(served: tuple[Server, str], case: KeyFault) -> None:
    cycle = Cycle(PRODUCTS["tailscale"], *served)
    case.arm(cycle)
    use = cycle._use
    cycle._use = lambda: (use(), case.then(cycle) if cycle.completed else None)  # type: ignore[assignment,func-returns-value]
    cycle.run()
    cycle.settle()
    cycle.api.calm()
    proof = cycle.reap()
    figures = {
        "machines alive": len(cycle.ours),
        "touched": cycle.touched,
        "orders beyond": cycle.excess,
        "untrue outputs": len(cycle.untrue),
    }
    FIGURES.update({"cases": 1, "cases of keys and devices": 1, **figures})
    problems = [f"{name}: {count}" for name, count in figures.items() if count] + cycle.untrue
    problems += [] if proof.clean else [f"not clean: {proof.to_dict()}"]
    text = "".join(event.line() for event in cycle.ledger.events) + " ".join(cycle.failures)
    problems += ["a secret in the ledger or a message"] if "canary" in text or TOKEN in text else []
    assert problems == [], f"{case.name} ({case.source}): {case.does}; {case.holds}; {cycle.failures}"
