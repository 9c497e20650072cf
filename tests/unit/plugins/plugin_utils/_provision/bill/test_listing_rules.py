# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a listed machine is to a cluster, and whether an account's listing can prove anything."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import AccountIdentity, Instance
from ansible_collections.muster.training.plugins.module_utils._model.ledger import EventKind, Lease
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.listing_rules import (
    Standing,
    find_account_problem,
    find_standing,
    index_leases,
    list_shown,
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


A, B = "https://a.example/v1", "https://b.example/v1"
OTHER = dataclasses.replace(LEASE, token="00000001", name="lab-h100-1-00000001", ids=("i-2",))


@pytest.mark.parametrize(
    ("changes", "identity", "problem"),
    [
        ({}, ("acme", "aaaa"), ""),
        ({}, ("acme", "bbbb"), "set account: aaaa"),
        ({}, ("other", "aaaa"), ""),
        ({}, ("bbbb", "bbbb"), "fingerprint bbbb"),
        ({}, ("aaaa", "bbbb"), ""),
        ({"fingerprints": (), "account": "bbbb"}, ("bbbb", "bbbb"), ""),
        ({"fingerprints": (), "account": "acme"}, ("acme", "bbbb"), "an absence there proves nothing"),
        ({"fingerprints": ("aaaa", "bbbb")}, ("acme", "bbbb"), ""),
        ({"apis": (A,)}, ("acme", "aaaa", A), ""),
        ({"apis": (A,)}, ("acme", "aaaa", B), f"set api_url to {A}"),
        ({"apis": (A, B)}, ("acme", "aaaa", B), ""),
        ({"apis": ()}, ("acme", "aaaa", B), ""),
    ],
)
def test_an_absence_says_something_where_the_lease_was_made_or_seen(
    changes: dict[str, t.Any], identity: tuple[str, ...], problem: str
) -> None:
    lease = dataclasses.replace(LEASE, **changes)
    found = find_account_problem(lease, AccountIdentity(*identity), [lease])
    assert problem in found and bool(found) == bool(problem)
    assert find_account_problem(lease, AccountIdentity(*identity), [lease], {TOKEN}) == "", "it is shown"


@pytest.mark.parametrize("identity", [AccountIdentity("bbbb", "bbbb", A), AccountIdentity("acme", "aaaa", B)])
def test_what_another_lease_shows_ties_the_account(identity: AccountIdentity) -> None:
    lease, other = (dataclasses.replace(item, apis=(A,)) for item in (LEASE, OTHER))
    assert find_account_problem(lease, identity, [lease, other]) != ""
    assert find_account_problem(lease, identity, [lease, other], {other.token}) == ""
    elsewhere = dataclasses.replace(other, apis=(B,), fingerprints=("cccc",))
    assert find_account_problem(lease, identity, [lease, elsewhere], {elsewhere.token}) != "", "it is in another world"


def test_without_credentials_nothing_is_known() -> None:
    assert find_account_problem(LEASE, None, [LEASE]).startswith("no credentials for lambda: set ")


def test_a_listing_shows_the_tokens_of_leases_of_ours() -> None:
    index = index_leases("lab", [LEASE], lambda _lease: False)
    assert list_shown([listed("x", None), listed()], index) == {TOKEN}
    assert list_shown([listed("bobs-box", None), listed("lab-h100-0-deadbeef", "deadbeef")], index) == set()


@pytest.mark.parametrize(("seen", "standing"), [(("i-1",), "within_lease"), ((), "foreign"), (("i-9",), "foreign")])
def test_an_id_without_a_name_is_ours_when_it_was_seen_with_our_token(
    seen: tuple[str, ...], standing: Standing
) -> None:
    index = index_leases("lab", [dataclasses.replace(LEASE, seen_ids=seen)], lambda _lease: False)
    assert find_standing(listed("i-1", None), index) == standing
    assert find_standing(listed("bobs-box", None), index) == "foreign", "another name is somebody's"
