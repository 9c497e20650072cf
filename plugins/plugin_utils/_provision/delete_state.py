# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of giving back: one claim for each lease that has to be proved gone. All values, times in Unix seconds.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Rental, Traits
from ...module_utils._model.ledger import Lease
from .create_state import AccountListed, DeleteInstance, Finish, ListAccount, QueuedDeletion, WaitUntil

ABSENCE_GAP_S = 5.0
DELETE_AGAIN_S = 30.0
RETRY_S = 10.0

LeaseKey = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteRequest:
    """Whose machines to give back and until when to try; ``delete_orphans`` is the user's consent."""

    cluster: str
    timeout_at: float
    delete_orphans: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Termination:
    """One lease on its way out.

    ``acknowledged`` maps an id to the time a delete of it was answered. An absence counts from ``quiet_from`` on,
    because an order without an answer may still take effect and a new machine may be missing from a listing.
    ``problem`` with ``final`` means that no retry can help (credentials, another account).
    """

    lease: Lease
    ids: tuple[str, ...] = ()
    live: tuple[Rental, ...] = ()
    acknowledged: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    retry_at: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    quiet_from: float = 0.0
    absent_at: tuple[float, ...] = ()
    problem: str = ""
    final: bool = False

    @property
    def key(self) -> LeaseKey:
        return (self.lease.token, self.lease.resource)

    @property
    def verified(self) -> bool:
        """Return whether the lease is proved gone."""
        return len(self.absent_at) >= 2

    @property
    def over(self) -> bool:
        """Return whether nothing more is to be done about it now."""
        return self.verified or self.final


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteState:
    """Everything the planner knows.

    ``tokens`` are all tokens of the ledger, ``scope`` those that are given back. ``trouble`` is the last error of an
    account's listing, ``unlisted`` one that no retry can heal.
    """

    request: DeleteRequest
    claims: t.Mapping[LeaseKey, Termination]
    traits: t.Mapping[str, Traits]
    accounts: t.Mapping[str, str]
    tokens: frozenset[str]
    scope: frozenset[str]
    next_list: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    unlisted: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    trouble: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    orphans: t.Mapping[LeaseKey, Rental] = dataclasses.field(default_factory=dict)
    unknown: t.Mapping[LeaseKey, Rental] = dataclasses.field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    over_time: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteAnswered:
    """A delete call came back. ``taken`` is false when the provider knows no such id."""

    at: float
    discard: QueuedDeletion
    taken: bool = False
    problem: str = ""
    final: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteListing:
    """A listing for giving back: as :class:`Listed`, and whether a retry of a failed one can help."""

    listed: AccountListed
    final: bool = False


DeleteAction = ListAccount | DeleteInstance | WaitUntil | Finish
DeleteEvent = DeleteListing | DeleteAnswered
