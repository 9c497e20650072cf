# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a deletion: one termination for each lease to prove absent. All values, times in Unix seconds."""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import AccountIdentity, Instance, ProviderTraits
from ...module_utils._model.ledger import Lease, higher_price
from .bill.listing_rules import LeaseIndex, LeaseKey, find_account_problem
from .create_state import AccountListed, DeleteInstance, ListAccount, QueuedDeletion

ABSENCE_GAP_S = 5.0
DELETE_AGAIN_S = 30.0
RETRY_S = 10.0
# A gateway refuses for a moment what it allows again: so many refusals in a row are those of the credentials.
REFUSALS = 3
# So long a first listing is waited for before what the ledger has is deleted by its id.
LISTING_PATIENCE_S = 15.0


def machine_absence_gap(traits: ProviderTraits) -> float:
    """Return how many seconds listings have to lack a machine with an id before it counts as gone."""
    return max(ABSENCE_GAP_S, traits.list_lag_s)


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteRequest:
    """Which cluster's leases to delete and until when to try; ``delete_orphans`` is the user's consent.

    ``whole`` judges the whole ledger: then the account of every machine within its lease has to be seen, too. One that
    ``yields`` deletes nothing when another controller has taken the ledger: what was due here may have a new deadline.
    """

    cluster: str
    timeout_at: float
    delete_orphans: bool = False
    whole: bool = False
    yields: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Termination:
    """One lease that is being deleted.

    ``acknowledged_at`` maps an id to the time a delete of it was answered. An absence counts from ``absent_from`` on,
    because an order without an answer may still take effect and a new machine may be missing from a listing.
    ``denied_ids`` are those of which an answer said that they cannot be deleted: their absence counts all the same.
    ``problem`` with ``is_permanent`` means that no retry can help (another account, or credentials that were refused
    ``refusals`` times in a row). ``disputed_ids`` are listed without its token, since ``disputed_since``: they are not
    touched. ``was_taken``: the provider accepted a delete of it, so that its absence is an end and no other account.
    """

    lease: Lease
    ids: tuple[str, ...] = ()
    listed_instances: tuple[Instance, ...] = ()
    acknowledged_at: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    retry_at: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    absent_from: float = 0.0
    absent_at: tuple[float, ...] = ()
    problem: str = ""
    is_permanent: bool = False
    refusals: int = 0
    denied_ids: frozenset[str] = frozenset()
    disputed_ids: frozenset[str] = frozenset()
    disputed_since: float | None = None
    was_taken: bool = False

    @property
    def key(self) -> LeaseKey:
        return self.lease.key

    @property
    def is_verified(self) -> bool:
        """Return whether the lease's absence is proved."""
        return len(self.absent_at) >= 2

    @property
    def own_price(self) -> float | None:
        """Return what one machine of it counts at: the higher one of the lease's price and of what is listed now."""
        listed = (item for item in self.listed_instances if item.resource == self.lease.resource)
        return higher_price(self.lease.price_usd_per_hour, *(item.price_usd_per_hour for item in listed))

    @property
    def second_ids(self) -> tuple[str, ...]:
        """Return the ids that are listed of it beside its own: of other machines of the same order."""
        listed = [item.id for item in self.listed_instances if item.resource == self.lease.resource]
        own = self.lease.id if self.lease.id in listed else next(iter(listed), None)
        return tuple(item for item in listed if item != own)

    @property
    def usd_per_hour(self) -> float | None:
        """Return what it counts at: for each machine that is listed of it the higher of its price and the lease's."""
        own = self.lease.price_usd_per_hour
        listed = [item for item in self.listed_instances if item.resource == self.lease.resource]
        prices = [higher_price(own, item.price_usd_per_hour) for item in listed] or [own]
        return None if None in prices else sum(price or 0.0 for price in prices)

    @property
    def is_finished(self) -> bool:
        """Return whether nothing more can be done about it now."""
        return self.is_verified or self.is_permanent


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteState:
    """Everything the planner knows.

    ``index`` has all leases of the ledger. ``shown`` are the tokens of ours that an account has shown, by provider.
    ``refusals`` counts the listings in a row that the credentials did not get, by provider. ``listing_problems`` holds
    the last error of an account's listing, ``unlistable`` one that no retry can resolve; ``listings`` the last one of
    each account that was listed at least once.
    """

    request: DeleteRequest
    terminations: t.Mapping[LeaseKey, Termination]
    traits: t.Mapping[str, ProviderTraits]
    accounts: t.Mapping[str, AccountIdentity]
    index: LeaseIndex
    shown: t.Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    next_listing_at: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    listings: t.Mapping[str, AccountListed] = dataclasses.field(default_factory=dict)
    refusals: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    unlistable: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    listing_problems: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    in_flight: frozenset[str] = frozenset()
    started_at: float = 0.0
    timed_out: bool = False

    def account_problem(self, lease: Lease) -> str:
        """Return why the account's listings say nothing about a lease, empty when they do."""
        identity = self.accounts.get(lease.provider)
        return find_account_problem(lease, identity, self.index.leases, self.shown.get(lease.provider, ()))

    def with_shown(self, provider: str, tokens: frozenset[str]) -> DeleteState:
        """Return the state in which an account has shown these tokens as well."""
        return dataclasses.replace(self, shown={**self.shown, provider: self.shown.get(provider, frozenset()) | tokens})


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteAnswered:
    """A delete call was answered. ``existed`` is false when the provider does not know the id.

    ``is_refused`` means that the credentials were, ``is_denied`` that the request itself was: no retry changes that.
    """

    at: float
    deletion: QueuedDeletion
    existed: bool = False
    problem: str = ""
    is_refused: bool = False
    is_denied: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteListing:
    """A listing of an account; ``is_refused`` when it failed because the credentials were refused."""

    listing: AccountListed
    is_refused: bool = False


DeleteAction = ListAccount | DeleteInstance
DeleteEvent = DeleteListing | DeleteAnswered
