# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a pool that is being created, the events that change it and the actions it asks for. All values.

Times are Unix seconds. A pool has one slot for each machine, or one for the whole pool where a provider's
cluster is ordered; a slot holds at most one lease. The machine of a lease that has left its slot is in ``deletions``
until listings lack it, and bills until then.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Instance, OrderAccepted, OrderRefused, OrderUnsettled, ProviderTraits
from ...module_utils._model.machine_memory import MachineMemory, MachineNote
from ...module_utils._model.offer import Candidate, Hardware, Offer
from .readiness import ProbeReport

Phase = t.Literal["wanted", "creating", "unsettled", "booting", "ready"]


@dataclasses.dataclass(frozen=True, slots=True)
class PoolRequest:
    """A pool to create. Prices are dollars per hour; ``timeout_at`` ends the waiting, ``deadline`` the leases."""

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
    max_replacements: int = 3
    capacity_wait_s: float = 0.0
    patience_s: float = 240.0
    gate: bool = True
    shrink: bool = False

    @property
    def is_cluster(self) -> bool:
        """Return whether one order creates the whole pool."""
        return self.candidates[0].unit == "cluster"

    @property
    def slot_count(self) -> int:
        """Return the number of orders that make the pool."""
        return 1 if self.is_cluster else self.count

    @property
    def machines_per_order(self) -> int:
        """Return the number of machines that one order creates."""
        return self.count if self.is_cluster else 1

    @property
    def label(self) -> str:
        """Return the pool's name in messages."""
        return f"{self.cluster}/{self.pool}"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """An offer, and the index (``tier``) of the candidate of the request that it fits."""

    tier: int
    offer: Offer

    @property
    def key(self) -> str:
        """Return the offer's key, unique among the choices."""
        return self.offer.key


@dataclasses.dataclass(frozen=True, slots=True)
class SlotLease:
    """The lease in a slot. ``protected`` marks one of an earlier, complete gang: a failure now must not delete it.

    ``since`` is when its boot time began, ``missing_since`` when the first of the listings in a row was asked for that
    lack it (or, of a protected one, show it unusable). ``disputed`` means that its id is listed without its token.
    ``ask_at`` is when its provider is to be asked for its id, as listings lack it for long and it is protected.
    ``seen_ids`` are those that a listing showed under its token before, ``ordered`` is what its order was for.
    ``first_answers`` holds when each machine first answered over SSH, ``passed_members`` the machines that passed the
    readiness gate.
    """

    token: str
    name: str
    provider: str
    since: float
    price: float | None = None
    id: str | None = None
    region: str | None = None
    missing_since: float | None = None
    disputed: bool = False
    instance: Instance | None = None
    first_answers: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    passed_members: frozenset[str] = frozenset()
    probe_at: float = 0.0
    problems: tuple[str, ...] = ()
    protected: bool = False
    seen_ids: tuple[str, ...] = ()
    ask_at: float | None = None
    ordered: Hardware | None = None

    def owns(self, instance: Instance, cluster: str) -> bool:
        """Return whether a listed instance is this lease's (see :meth:`Lease.owns`)."""
        seen = (*self.seen_ids, *((self.instance.id,) if self.instance else ()))
        return instance.carries(cluster, self.token) or (instance.is_nameless and instance.id in seen)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineSlot:
    """One machine of the pool to be; ``until`` is when an order without an answer counts as not taken.

    An order that was ``throttled`` is looked for once, before the next one: an API may refuse and act all the same.
    """

    index: int
    phase: Phase = "wanted"
    lease: SlotLease | None = None
    choice: Choice | None = None
    until: float = 0.0
    throttled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedDeletion:
    """An instance to delete; ``retry_at`` is when the next attempt is due.

    It bills ``price`` until it is absent from listings: it was ``acknowledged_at``, and first absent at ``absent_at``.
    One that is ``stuck`` cannot be deleted by this call.
    """

    instance: Instance
    reason: str
    retry_at: float = 0.0
    attempts: int = 0
    price: float | None = None
    acknowledged_at: float | None = None
    absent_at: float | None = None
    stuck: bool = False

    @property
    def is_open(self) -> bool:
        """Return whether a delete call is still to be made."""
        return self.acknowledged_at is None and not self.stuck


@dataclasses.dataclass(frozen=True, slots=True)
class PoolState:
    """Everything the planner knows.

    ``tier`` is the candidate that is being ordered, ``closed_until`` until when a choice may not be ordered,
    ``order_counts`` how often each was. ``memory`` is of the machines of earlier calls, and ``notes`` what this one
    adds; ``suspects`` are of machines that ended by themselves, which may be due to the order: they become notes once
    another machine of it is ready. ``abandoned_tokens`` are of orders that no slot waits for: what appears under them
    is deleted. ``returned_at`` are the providers that list what was proved gone. ``throttles`` counts the refusals for
    the pace in a row, by provider; ``last_problem`` is why an order was refused, or a machine replaced, last.
    ``listing_problems`` holds why a provider cannot be listed at the moment, ``in_flight`` the keys of the actions
    that have no answer yet. ``clock_offsets`` is how many seconds the clocks of APIs are ahead of this one, by
    provider.
    """

    request: PoolRequest
    slots: tuple[MachineSlot, ...]
    traits: t.Mapping[str, ProviderTraits]
    choices: tuple[Choice, ...] = ()
    tier: int = 0
    closed_until: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    order_counts: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    bad_hosts: frozenset[str] = frozenset()
    memory: MachineMemory = MachineMemory()
    notes: tuple[MachineNote, ...] = ()
    suspects: tuple[MachineNote, ...] = ()
    next_order_at: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    next_listing_at: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    deletions: tuple[QueuedDeletion, ...] = ()
    abandoned_tokens: frozenset[str] = frozenset()
    throttles: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    replacements: int = 0
    returned_at: frozenset[str] = frozenset()
    started_at: float = 0.0
    in_flight: frozenset[str] = frozenset()
    failure: str = ""
    last_problem: str = ""
    listing_problems: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    history: tuple[str, ...] = ()
    clock_offsets: t.Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Return whether every slot holds a usable machine."""
        return self.ready_count == len(self.slots)

    @property
    def ready_count(self) -> int:
        """Return how many slots hold a usable machine."""
        return sum(slot.phase == "ready" for slot in self.slots)

    def explain_blindness(self, provider: str) -> str:
        """Return that a provider cannot be listed, for a message on what is awaited there; empty where it can."""
        problem = self.listing_problems.get(provider)
        return f"; {provider} cannot be listed: {problem}" if problem else ""

    def with_slot(self, slot: MachineSlot) -> PoolState:
        """Return the state with ``slot`` in the place of its index."""
        slots = tuple(slot if item.index == slot.index else item for item in self.slots)
        return dataclasses.replace(self, slots=slots)

    def with_abandoned(self, token: str) -> PoolState:
        """Return the state in which no slot waits for the order of ``token``."""
        return dataclasses.replace(self, abandoned_tokens=self.abandoned_tokens | {token})

    def with_history(self, line: str) -> PoolState:
        """Return the state with one more line for the user."""
        return dataclasses.replace(self, history=(*self.history, line))


# Actions: what to do now.


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
    """Run the readiness probe on one machine over SSH; it must show what was ``ordered``."""

    slot: int
    token: str
    machine: Instance
    ordered: Hardware = Hardware()

    @property
    def key(self) -> str:
        return f"probe:{self.token}:{self.machine.id}"


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteInstance:
    """Delete one instance."""

    deletion: QueuedDeletion

    @property
    def key(self) -> str:
        return f"delete:{self.deletion.instance.provider}:{self.deletion.instance.id}"


@dataclasses.dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing is due before ``until``."""

    until: float


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The pool is complete (``reason`` empty) or cannot be completed."""

    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadMachine:
    """Ask a provider for the machine of a slot by its id, which listings lack."""

    slot: int
    instance: Instance

    @property
    def key(self) -> str:
        return f"read:{self.instance.token}"


CreateAction = PlaceOrder | ListAccount | ProbeMachine | DeleteInstance | ReadMachine


# Events: what happened, with its time.


@dataclasses.dataclass(frozen=True, slots=True)
class OrderSent:
    """An order is about to be sent: its intent is on disk."""

    at: float
    slot: int
    choice: Choice
    token: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class OrderAnswered:
    """A create call was answered."""

    at: float
    slot: int
    answer: OrderAccepted | OrderRefused | OrderUnsettled


@dataclasses.dataclass(frozen=True, slots=True)
class AccountListed:
    """A listing was answered; ``requested_at`` is when the call began, ``problem`` why it failed.

    It is ``age_s`` old where it came from a cache. The API's clock is ``clock_offset_s`` ahead of this one.
    """

    at: float
    requested_at: float
    provider: str
    instances: tuple[Instance, ...] = ()
    problem: str = ""
    age_s: float = 0.0
    clock_offset_s: float | None = None

    @property
    def as_of(self) -> float:
        """Return since when at the latest what it shows may have changed: an absence counts from then."""
        return self.requested_at - self.age_s


@dataclasses.dataclass(frozen=True, slots=True)
class MachineProbed:
    """A readiness probe of a machine ended."""

    at: float
    slot: int
    token: str
    member: str
    report: ProbeReport


@dataclasses.dataclass(frozen=True, slots=True)
class MachineRead:
    """A provider was asked for a machine's id: it ``exists``, or does not, or None because of ``problem``."""

    at: float
    slot: int
    token: str
    exists: bool | None = None
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionAnswered:
    """A delete call was answered; ``problem`` says why it failed. ``existed`` is false for an id that is not known."""

    at: float
    deletion: QueuedDeletion
    problem: str = ""
    existed: bool = True


CreateEvent = OrderSent | OrderAnswered | AccountListed | MachineProbed | MachineRead | DeletionAnswered
