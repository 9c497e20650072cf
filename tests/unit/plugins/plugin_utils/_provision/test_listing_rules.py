# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a listed machine is to a cluster, and whether an account's listing can prove anything."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import AccountIdentity, Instance
from ansible_collections.muster.training.plugins.module_utils._model.ledger import EventKind, Lease
from ansible_collections.muster.training.plugins.plugin_utils._provision.listing_rules import (
    Standing,
    find_standing,
    index_leases,
    is_known_account,
    shows_ours,
)

TOKEN = "1f2e3d4c"
NAME = f"lab-h100-0-{TOKEN}"
LEASE = Lease(
    token=TOKEN,
    resource="instance",
    cluster="lab",
    pool="h100",
    name=NAME,
    provider="lambda",
    account="acme",
    state="joined",
    settled=True,
    intent_at=0.0,
    changed_at=0.0,
    ids=("i-1",),
    fingerprints=("aaaa",),
)


def listed(name: str = NAME, token: str | None = TOKEN, key: str = "i-1") -> Instance:
    return Instance("lambda", key, name, token, "running")


@pytest.mark.parametrize(
    ("state", "is_selected", "standing"),
    [
        ("joined", True, "due"),
        ("joined", False, "within_lease"),
        ("intent", False, "within_lease"),
        ("failed", False, "within_lease"),
        ("verified", True, "due"),
        ("verified", False, "returned"),
    ],
)
def test_a_listed_machine_of_ours_is_judged_by_its_lease(
    state: EventKind, is_selected: bool, standing: Standing
) -> None:
    index = index_leases("lab", [dataclasses.replace(LEASE, state=state)], lambda _lease: is_selected)
    assert find_standing(listed(), index) == standing
    assert find_standing(listed("renamed", TOKEN, "i-9"), index) == standing, "a tag is as good as a name"


@pytest.mark.parametrize("is_selected", [True, False])
@pytest.mark.parametrize("state", ["joined", "verified"])
@pytest.mark.parametrize(
    ("name", "token", "standing"),
    [
        ("bobs-box", None, "foreign"),
        (f"lab2-h100-0-{TOKEN}", TOKEN, "foreign"),
        ("renamed", "deadbeef", "foreign"),
        ("lab2-h100-0-deadbeef", "deadbeef", "foreign"),
        ("lab-h100-0-deadbeef", "deadbeef", "orphan"),
    ],
)
def test_an_id_of_the_ledger_makes_nothing_ours(
    name: str, token: str | None, standing: Standing, state: EventKind, is_selected: bool
) -> None:
    index = index_leases("lab", [dataclasses.replace(LEASE, state=state)], lambda _lease: is_selected)
    assert find_standing(listed(name, token), index) == standing


def test_a_device_goes_with_its_machine() -> None:
    device = dataclasses.replace(LEASE, resource="device", provider="tailscale", state="verified")
    item = Instance("tailscale", "d-1", NAME, TOKEN, "running", "device")
    for state, selected, standing in (
        ("joined", {"device"}, "within_lease"),
        ("joined", {"instance"}, "due"),
        ("verified", {"device"}, "returned"),
    ):
        machine = dataclasses.replace(LEASE, state=state)
        index = index_leases("lab", [machine, device], lambda lease: lease.resource in selected)  # noqa: B023
        assert find_standing(item, index) == standing


@pytest.mark.parametrize(
    ("account", "fingerprint", "is_known"),
    [("acme", "aaaa", True), ("acme", "bbbb", False), ("bbbb", "bbbb", True), ("other", "aaaa", False)],
)
def test_a_named_account_is_known_by_the_credentials_that_made_something(
    account: str, fingerprint: str, is_known: bool
) -> None:
    assert is_known_account("lambda", AccountIdentity(account, fingerprint), [LEASE]) is is_known


def test_a_listing_that_shows_ours_is_of_the_right_account() -> None:
    index = index_leases("lab", [LEASE], lambda _lease: False)
    identity = AccountIdentity("acme", "bbbb")
    assert shows_ours("lambda", identity, [listed("x", None), listed()], index)
    assert not shows_ours("lambda", identity, [listed("bobs-box", None)], index)
    assert not shows_ours("lambda", AccountIdentity("other", "bbbb"), [listed()], index)
    assert not shows_ours("runpod", identity, [listed()], index)
