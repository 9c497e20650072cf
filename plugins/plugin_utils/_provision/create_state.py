# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a pool that is being rented, the events that change it and the actions it asks for. All values.

Times are Unix seconds. A pool has one slot for each machine (one for the whole pool where a cluster is rented); a
slot holds at most one lease. Leases that are given up move to ``discards`` until their deletion is acknowledged.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Created, Refused, Rental, Traits, Unsettled
from ...module_utils._model.offer import Candidate, Offer
from .readiness import ProbeReport

Phase = t.Literal["wanted", "creating", "unsettled", "booting", "ready"]


@dataclasses.dataclass(frozen=True, slots=True)
class PoolRequest:
    """What is to be rented. Prices are dollars per hour; ``timeout_at`` ends the waiting, ``deadline`` the leases."""

    cluster: str
    pool: str
    count: int
    candidates: tuple[Candidate, ...]
    timeout_at: float
    max_price_usd_per_hour: float | None = None
    max_total_usd_per_hour: float | None = None
    run_id: str | None = None
    deadline: str | None = None
    release: str | None = None
    max_cost_usd: float | None = None
    mixed: bool = False
    max_rerolls: int = 3
    capacity_wait_s: float = 0.0
    patience_s: float = 240.0
    gate: bool = True

    @property
    def whole(self) -> bool:
        """Return whether one order yields the whole pool."""
        return self.candidates[0].unit == "cluster"

    @property
    def slots(self) -> int:
        """Return how many orders make the pool."""
        return 1 if self.whole else self.count


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """An offer with the candidate (by its place in the request) that it answers."""

    tier: int
    offer: Offer

    @property
    def key(self) -> str:
        """Return what tells this choice from others."""
        return self.offer.key


@dataclasses.dataclass(frozen=True, slots=True)
class SlotLease:
    """A lease in play. ``kept`` marks one of an earlier, complete gang: a failure now must not take it away."""

    token: str
    name: str
    provider: str
    since: float
    price: float | None = None
    id: str | None = None
    region: str | None = None
    seen_at: float | None = None
    rental: Rental | None = None
    answered: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    probe_at: float = 0.0
    problems: tuple[str, ...] = ()
    kept: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class MachineSlot:
    """One place in the pool; ``until`` is when an unsettled order counts as not taken."""

    index: int
    phase: Phase = "wanted"
    held: SlotLease | None = None
    choice: Choice | None = None
    not_before: float = 0.0
    until: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedDeletion:
    """A thing to delete now; ``retry_at`` is when the next attempt is due."""

    rental: Rental
    reason: str
    retry_at: float = 0.0
    attempts: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PoolState:
    """Everything the planner knows. ``busy`` names the actions that are on their way."""

    request: PoolRequest
    slots: tuple[MachineSlot, ...]
    traits: t.Mapping[str, Traits]
    choices: tuple[Choice, ...] = ()
    tier: int = 0
    closed: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    used: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    bad_hosts: frozenset[str] = frozenset()
    next_create: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    next_list: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    discards: tuple[QueuedDeletion, ...] = ()
    watched: frozenset[str] = frozenset()
    rerolls: int = 0
    started_at: float = 0.0
    busy: frozenset[str] = frozenset()
    failure: str = ""
    history: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Return whether every slot holds a usable machine."""
        return all(slot.phase == "ready" for slot in self.slots)


# Actions: what the driver is asked to do now.


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceOrder:
    """Place an order for a slot."""

    slot: int
    choice: Choice

    @property
    def key(self) -> str:
        return f"create:{self.slot}"


@dataclasses.dataclass(frozen=True, slots=True)
class ListAccount:
    """List a provider's account."""

    provider: str

    @property
    def key(self) -> str:
        return f"list:{self.provider}"


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeMachine:
    """Look at one machine over SSH."""

    slot: int
    token: str
    machine: Rental

    @property
    def key(self) -> str:
        return f"probe:{self.token}:{self.machine.id}"


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteInstance:
    """Delete one thing."""

    discard: QueuedDeletion

    @property
    def key(self) -> str:
        return f"delete:{self.discard.rental.provider}:{self.discard.rental.id}"


@dataclasses.dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing is due before ``until``."""

    until: float


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The pool is complete (``reason`` empty) or cannot be completed."""

    reason: str = ""


CreateAction = PlaceOrder | ListAccount | ProbeMachine | DeleteInstance | WaitUntil | Finish


# Events: what happened, with its time.


@dataclasses.dataclass(frozen=True, slots=True)
class OrderSent:
    """An order is about to leave: its intent is on disk."""

    at: float
    slot: int
    choice: Choice
    token: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class OrderAnswered:
    """A create call came back."""

    at: float
    slot: int
    answer: Created | Refused | Unsettled


@dataclasses.dataclass(frozen=True, slots=True)
class AccountListed:
    """A listing arrived; ``asked_at`` is when it was asked for, ``problem`` why it failed."""

    at: float
    asked_at: float
    provider: str
    rentals: tuple[Rental, ...] = ()
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MachineProbed:
    """A look at a machine ended."""

    at: float
    slot: int
    token: str
    member: str
    report: ProbeReport


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionAnswered:
    """A delete call came back; ``problem`` says why it failed."""

    at: float
    discard: QueuedDeletion
    problem: str = ""


CreateEvent = OrderSent | OrderAnswered | AccountListed | MachineProbed | DeletionAnswered
