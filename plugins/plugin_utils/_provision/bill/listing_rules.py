# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The standing of a listed machine: the one table that a listing and a ledger are read with.

=========================================  =========================================  ==================
The listing shows                          The ledger says of its token               Standing
=========================================  =========================================  ==================
no token of this cluster, whatever its id  -                                          foreign
no name, an id that was seen with a token  the same as for that token
a name of this cluster                     nothing                                    orphan
a token of this cluster                    an open lease, selected                    due
a token of this cluster                    an open lease, not selected                within_lease
a token of this cluster                    proved gone, selected                      due
a token of this cluster                    proved gone, not selected                  returned
=========================================  =========================================  ==================

The listing is judged first: a machine that is listed bills, whatever was proved before. An id alone makes nothing
ours, because an answer may have held a wrong one: the token in the name, or in a tag, does. An id that was seen under
its token before counts as long as no name at all is shown.

An absence says something of a lease only where the listing is of the account that the lease is in: made or seen with
these credentials, at this address of the API, or its token is shown now.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.lease import AccountIdentity, Instance, parse_instance_name
from ....module_utils._model.ledger import Lease

Standing = t.Literal["foreign", "orphan", "due", "within_lease", "returned"]
LeaseKey = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseIndex:
    """All leases of a cluster's ledger, by token, and the keys of those that a call selects."""

    cluster: str
    by_token: t.Mapping[str, tuple[Lease, ...]]
    selected: frozenset[LeaseKey] = frozenset()

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Return all leases."""
        return tuple(lease for leases in self.by_token.values() for lease in leases)


def index_leases(cluster: str, leases: t.Iterable[Lease], scope: t.Callable[[Lease], bool]) -> LeaseIndex:
    """Return the leases of a cluster; ``scope`` returns whether a call selects one."""
    by_token: dict[str, tuple[Lease, ...]] = {}
    selected = set()
    for lease in leases:
        by_token[lease.token] = (*by_token.get(lease.token, ()), lease)
        if scope(lease):
            selected.add(lease.key)
    return LeaseIndex(cluster, by_token, frozenset(selected))


def find_standing(instance: Instance, index: LeaseIndex) -> Standing:
    """Return what a listed instance is to the cluster, by the table above."""
    of_token = find_leases(instance, index)
    if not of_token:
        parts = parse_instance_name(instance.name)
        is_ours = parts is not None and parts.cluster == index.cluster and instance.token == parts.token
        return "orphan" if is_ours else "foreign"
    # A device or key of a machine goes with its machine.
    leases = tuple(lease for lease in of_token if lease.machine) or of_token
    open_leases = tuple(lease for lease in leases if lease.open)
    if any(lease.key in index.selected for lease in open_leases or leases):
        return "due"
    return "within_lease" if open_leases else "returned"


def find_leases(instance: Instance, index: LeaseIndex) -> tuple[Lease, ...]:
    """Return the leases of the machine that a listed instance is, or belongs to; none for what is not ours."""
    if instance.is_nameless:
        return tuple(lease for lease in index.leases if lease.owns(instance))
    token = instance.token
    return index.by_token.get(token, ()) if token and instance.carries(index.cluster, token) else ()


def list_shown(instances: t.Iterable[Instance], index: LeaseIndex) -> frozenset[str]:
    """Return the tokens of our leases that a listing shows: it is of the account that they are in."""
    return frozenset(
        item.token
        for item in instances
        if item.token is not None and item.carries(index.cluster, item.token) and item.token in index.by_token
    )


def missing_credentials(provider: str) -> str:
    """Return that there is no account of a provider, and how to give one."""
    return f"no credentials for {provider}: set its environment variable, or add it to muster_providers"


def find_account_problem(
    lease: Lease, identity: AccountIdentity | None, leases: t.Collection[Lease], shown: t.Collection[str] = ()
) -> str:
    """Return why an absence in the listing of these credentials says nothing about a lease; empty when it does.

    :param leases: all leases of the ledger: one that was seen in two ways ties these to each other.
    :param shown: the tokens that the listing has shown.
    """
    if identity is None:
        return missing_credentials(lease.provider)
    if lease.token in shown:
        return ""
    kin = [item for item in leases if item.provider == lease.provider]
    seen = [item for item in kin if item.token in shown]
    ties = [item.apis for item in kin if item in seen or identity.api in item.apis]
    apis = {identity.api, *(api for item in ties for api in item)}
    if lease.apis and identity.api and not apis.intersection(lease.apis):
        return (
            f"was made at {lease.apis[0]}, and nothing of it was ever seen at {identity.api}, so an absence there "
            f"proves nothing: set api_url to {lease.apis[0]}"
        )
    return "" if _is_known_credential(lease, identity, kin, seen) else unknown_account(lease, identity)


def _is_known_credential(
    lease: Lease, identity: AccountIdentity, kin: t.Collection[Lease], seen: t.Collection[Lease]
) -> bool:
    """Return whether a credential is of a lease's account: it made or saw it, or saw what another one of it did.

    A user who gives an account the fingerprint of the lease's credential as its name says that it is the same.
    """
    own = [item for item in kin if item in seen or identity.fingerprint in item.fingerprints]
    known = {identity.fingerprint, *(value for item in own for value in item.fingerprints)}
    if lease.fingerprints:
        return bool(known.intersection(lease.fingerprints)) or identity.name in lease.fingerprints
    # Of ledgers without fingerprints.
    names = {identity.name} if identity.name == identity.fingerprint else set()
    return lease.account in names | {item.account for item in own}


def disputed_id(key: str, name: str) -> str:
    """Return the problem of an id of ours that is listed without its token."""
    shown = name if name and name != key else "without a name"
    return f"{key} is listed as {shown}, without its token, and is not touched: delete it there if it is yours"


def unknown_account(lease: Lease, identity: AccountIdentity) -> str:
    """Return the problem of a credential with which nothing of a lease's account was ever seen."""
    name = lease.fingerprints[0] if lease.fingerprints else lease.account
    return (
        f"was made in account {lease.account} of {lease.provider} and never seen with these credentials (account "
        f"{identity.name}, fingerprint {identity.fingerprint}), so an absence there proves nothing: use those that it "
        f"was made with, or set account: {name} where they are of the same account"
    )
