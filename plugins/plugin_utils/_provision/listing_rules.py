# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The standing of a listed machine: the one table that a listing and a ledger are read with.

=========================================  =========================================  ==================
The listing shows                          The ledger says of its token               Standing
=========================================  =========================================  ==================
no token of this cluster, whatever its id  -                                          foreign
a name of this cluster                     nothing                                    orphan
a token of this cluster                    an open lease, selected                    due
a token of this cluster                    an open lease, not selected                within_lease
a token of this cluster                    proved gone, selected                      due
a token of this cluster                    proved gone, not selected                  returned
=========================================  =========================================  ==================

The listing is judged first: a machine that is listed bills, whatever was proved before. An id alone makes nothing
ours, because an answer may have held a wrong one: the token in the name, or in a tag, does.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import AccountIdentity, Instance, parse_instance_name
from ...module_utils._model.ledger import Lease

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
    token = instance.token
    if token is None or not instance.carries(index.cluster, token):
        return "foreign"
    of_token = index.by_token.get(token, ())
    if not of_token:
        parts = parse_instance_name(instance.name)
        return "orphan" if parts is not None and parts.cluster == index.cluster else "foreign"
    # A device or key of a machine goes with its machine.
    leases = tuple(lease for lease in of_token if lease.machine) or of_token
    open_leases = tuple(lease for lease in leases if lease.open)
    if any(lease.key in index.selected for lease in open_leases or leases):
        return "due"
    return "within_lease" if open_leases else "returned"


def is_known_account(provider: str, identity: AccountIdentity, leases: t.Iterable[Lease]) -> bool:
    """Return whether something of ours was made or seen with this credential.

    Under an account name of the user the credential may be of another account, in whose listing everything is absent.
    """
    if identity.name == identity.fingerprint:
        return True
    return any(
        (lease.provider, lease.account) == (provider, identity.name) and identity.fingerprint in lease.fingerprints
        for lease in leases
    )


def shows_ours(provider: str, identity: AccountIdentity, instances: t.Iterable[Instance], index: LeaseIndex) -> bool:
    """Return whether a listing shows a lease of this account, so that the credential is this account's."""
    return any(
        instance.token is not None
        and instance.carries(index.cluster, instance.token)
        and any(
            (lease.provider, lease.account) == (provider, identity.name)
            for lease in index.by_token.get(instance.token, ())
        )
        for instance in instances
    )


def disputed_id(key: str, name: str) -> str:
    """Return the problem of an id of ours that is listed without its token."""
    shown = name if name and name != key else "without a name"
    return f"{key} is listed as {shown}, without its token, and is not touched: delete it there if it is yours"


def unknown_account(provider: str, identity: AccountIdentity) -> str:
    """Return the problem of a credential with which nothing of ours was ever seen."""
    return (
        f"nothing of this cluster was ever seen with these credentials of {provider} (fingerprint "
        f"{identity.fingerprint}), so an absence there proves nothing; use those that it was created with"
    )
