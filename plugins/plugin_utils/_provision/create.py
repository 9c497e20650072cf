# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renting a pool, carried out: all or nothing, with an intent in the ledger before every create call.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
import typing as t

from ...module_utils._model.errors import MusterError, ProviderError, TransportError
from ...module_utils._model.lease import RentedName, TeardownProof, Unsettled
from ...module_utils._model.ledger import EventKind, Lease
from ...module_utils._model.offer import Offer, Order
from .api import Prober, ProviderApi, Scheduler
from .create_adopt import Listings, initial_state, pool_leases, rank_offers
from .create_plan import decide
from .create_reduce import advance, reduce
from .create_state import (
    AccountListed,
    Choice,
    CreateEvent,
    DeleteInstance,
    DeletionAnswered,
    ListAccount,
    MachineProbed,
    OrderAnswered,
    OrderSent,
    PlaceOrder,
    PoolRequest,
    PoolState,
    SlotLease,
)
from .create_state import ProbeMachine as ProbeAction
from .delete import AccountApis, delete_leases, list_account
from .delete_state import DeleteRequest
from .ledger.ledger_events import create_events, lease_event, pending_event
from .ledger.ledger_session import LedgerSession
from .reconcile import reconcile

ProviderApis = t.Mapping[str, ProviderApi]
ReportLine = t.Callable[[str], None]
SURPLUS_TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """What every order of a pool carries, and how long to try to give back a gang that cannot be completed."""

    ssh_public_key: str | None = None
    user_data: str | None = dataclasses.field(default=None, repr=False)
    release_timeout_s: float = 900.0


@dataclasses.dataclass(frozen=True, slots=True)
class CreateOutcome:
    """How renting ended. ``failure`` is empty for a complete pool; ``proof`` covers what was given back."""

    state: PoolState
    failure: str
    proof: TeardownProof
    placed: int


def generate_token(taken: t.Collection[str]) -> str:
    """Return a token that this ledger has never seen."""
    while True:
        token = secrets.token_hex(4)
        if token not in taken:
            return token


class _CreateEffects:
    """The effects of renting."""

    def __init__(
        self,
        landlords: ProviderApis,
        prober: Prober | None,
        book: LedgerSession,
        stage: Scheduler,
        terms: Terms,
        tokens: t.Callable[[t.Collection[str]], str],
        tell: ReportLine,
        gone: t.Callable[[], bool],
    ) -> None:
        self._landlords = landlords
        self._accounts = {name: item.account for name, item in landlords.items()}
        self._prober = prober
        self._book = book
        self._stage = stage
        self._terms = terms
        self._tokens = tokens
        self._tell = tell
        self._gone = gone
        self.placed = 0

    def decide(self, state: PoolState, now: float) -> t.Sequence[t.Any]:
        return decide(state, now)

    def tick(self, state: PoolState, now: float) -> PoolState:
        if self._gone() and not state.failure:
            return dataclasses.replace(state, failure="whoever asked for it has ended")
        return state if state.failure else advance(state, now)

    def start(self, state: PoolState, action: t.Any) -> tuple[PoolState, t.Callable[[], t.Any] | None]:
        if isinstance(action, PlaceOrder):
            return self._place(state, action)
        state = dataclasses.replace(state, busy=state.busy | {action.key})
        if isinstance(action, ListAccount):
            return state, lambda: list_account(self._landlords[action.provider], self._stage).listed
        if isinstance(action, DeleteInstance):
            return state, lambda: self._drop(action)
        return state, lambda: self._probe(action)

    def take(self, state: PoolState, event: CreateEvent) -> PoolState:
        after = reduce(state, event)
        self._report(state, after)
        for entry in create_events(state, event, after, self._accounts):
            self._book.note(entry)
        if self._book.problem and not after.failure:
            after = dataclasses.replace(after, failure=self._book.problem)
        return after

    def _report(self, old: PoolState, new: PoolState) -> None:
        for text in new.history[len(old.history) :]:
            self._tell(text)
        before, now = (sum(slot.phase == "ready" for slot in item.slots) for item in (old, new))
        if now != before:
            self._tell(f"{new.request.cluster}/{new.request.pool}: {now} of {len(new.slots)} ready")

    def _place(self, state: PoolState, action: PlaceOrder) -> tuple[PoolState, t.Callable[[], t.Any] | None]:
        request, choice = state.request, action.choice
        token = self._tokens(self._book.tokens)
        name = str(RentedName(request.cluster, request.pool, action.slot, token))
        after = reduce(state, OrderSent(self._stage.now(), action.slot, choice, token, name))
        held = after.slots[action.slot].held
        try:
            if held is not None:
                self._book.intend(pending_event(request, self._accounts, held, self._stage.now(), "intent"))
        except MusterError as error:
            return dataclasses.replace(state, failure=str(error)), None
        if not self.placed:
            where = f"{request.cluster}/{request.pool}"
            self._tell(f"{where}: ordering; after an interruption the same command goes on, teardown ends everything")
        self.placed += 1
        order = self._order(request, choice, token, name)
        after = dataclasses.replace(after, busy=after.busy | {action.key})
        return after, lambda: self._create(action.slot, choice.offer.provider, order)

    def _order(self, request: PoolRequest, choice: Choice, token: str, name: str) -> Order:
        candidate = request.candidates[choice.tier]
        return Order(
            token=token,
            name=name,
            offer=choice.offer,
            cluster=request.cluster,
            pool=request.pool,
            count=request.count if request.whole else 1,
            image=candidate.image,
            disk_gib=candidate.disk_gib,
            ports=candidate.ports,
            ssh_public_key=self._terms.ssh_public_key,
            user_data=self._terms.user_data,
            deadline=request.deadline,
        )

    def _create(self, slot: int, provider: str, order: Order) -> OrderAnswered:
        try:
            answer = self._landlords[provider].create(order)
        except MusterError as error:
            answer = Unsettled(str(error))
        return OrderAnswered(self._stage.now(), slot, answer)

    def _drop(self, action: DeleteInstance) -> DeletionAnswered:
        rental = action.discard.rental
        try:
            self._landlords[rental.provider].delete(rental)
        except TransportError as error:
            return DeletionAnswered(self._stage.now(), action.discard, str(error))
        return DeletionAnswered(self._stage.now(), action.discard)

    def _probe(self, action: ProbeAction) -> MachineProbed:
        if self._prober is None:
            raise ValueError("a pool with a readiness gate needs a prober")
        report = self._prober.probe(action.machine)
        return MachineProbed(self._stage.now(), action.slot, action.token, action.machine.id, report)


def read_pool(request: PoolRequest, landlords: ProviderApis, book: LedgerSession, stage: Scheduler) -> PoolState:
    """Return the pool's state before anything is done: adopted machines, and offers unless all of them are ready.

    Only reads. Raises ProviderError when an account cannot be listed, for then nothing may be created, and when
    machines are missing but no offer can be read.
    """
    needed = {str(candidate.provider) for candidate in request.candidates}
    needed |= {lease.provider for lease in pool_leases(request, book.leases.values()) if lease.open}
    _check_accounts(request, landlords, book, needed)
    listings = _list_accounts({name: landlords[name] for name in needed}, stage)
    traits = {name: item.traits for name, item in landlords.items()}
    state = initial_state(request, book.leases.values(), listings, traits, stage.now())
    if all(slot.phase == "ready" for slot in state.slots):
        return rank_offers(state, (), stage.now())
    # Also when all is under way: what was begun may never come to be, or turn out bad.
    offers, problems = _read_offers(request, landlords, stage)
    if problems and not offers and any(slot.held is None for slot in state.slots):
        raise ProviderError(f"no offers could be read: {'; '.join(problems)}")
    return rank_offers(state, offers, stage.now())


def _check_accounts(request: PoolRequest, landlords: ProviderApis, book: LedgerSession, needed: set[str]) -> None:
    missing = sorted(needed - set(landlords))
    if missing:
        raise ProviderError(f"no credentials for {', '.join(missing)} are given", "Add them under providers")
    for lease in pool_leases(request, book.leases.values()):
        account = landlords[lease.provider].account if lease.provider in landlords else lease.account
        if lease.open and lease.account != account:
            # Seen from another account, a machine that runs looks gone.
            words = f"{lease.name} was rented in account {lease.account} of {lease.provider}, not in {account}"
            raise ProviderError(words, "Use its credentials, or set account if only the key has changed")


def _list_accounts(landlords: AccountApis, stage: Scheduler) -> Listings:
    works = {name: stage.submit(functools.partial(list_account, item, stage)) for name, item in landlords.items()}
    found: dict[str, t.Any] = {}
    for name, work in works.items():
        stage.wait([work], stage.now() + 600.0)
        listed: AccountListed = work.result().listed
        if listed.problem:
            raise ProviderError(f"nothing is rented, because {name} cannot be listed: {listed.problem}")
        found[name] = listed.rentals
    return found


def _read_offers(request: PoolRequest, landlords: ProviderApis, stage: Scheduler) -> tuple[list[Offer], list[str]]:
    """Return the offers of all candidates, and a problem for each one whose provider did not answer."""
    found: list[Offer] = []
    problems: list[str] = []
    works = [
        stage.submit(functools.partial(landlords[str(item.provider)].offers, item, request.count))
        for item in request.candidates
    ]
    for work in works:
        stage.wait([work], stage.now() + 600.0)
        try:
            found += [offer for offer in work.result() if offer not in found]
        except TransportError as error:
            problems.append(str(error))
    return found, problems


def create_pool(
    request: PoolRequest,
    landlords: ProviderApis,
    book: LedgerSession,
    stage: Scheduler,
    *,
    prober: Prober | None,
    terms: Terms,
    tokens: t.Callable[[t.Collection[str]], str] = generate_token,
    tell: ReportLine = lambda _line: None,
    gone: t.Callable[[], bool] = lambda: False,
) -> CreateOutcome:
    """Rent what is missing of a pool and return when it is complete, or when what was taken is given back.

    :param prober: looks at machines over SSH; None only when the request has no gate.
    :param tell: gets a line for everything that a waiting person wants to know.
    :param gone: whether nobody waits any more: then the gang is given back like one that cannot be completed.
    """
    state = read_pool(request, landlords, book, stage)
    accounts = {name: item.account for name, item in landlords.items()}
    for slot in state.slots:
        if slot.held is not None and not slot.held.kept:
            # Begun by a controller that is gone: from now on it is waited for here.
            book.note(pending_event(request, accounts, slot.held, stage.now(), _lease_state(book, slot.held)))
    engine = _CreateEffects(landlords, prober, book, stage, terms, tokens, tell, gone)
    state, end = reconcile(engine, state, stage)
    if not end.reason:
        _record_joined(request, landlords, book, state, stage)
    failure = end.reason or book.problem
    kept = {slot.held.token for slot in state.slots if slot.held and (slot.held.kept or not failure)}

    def given_up(lease: Lease) -> bool:
        ours = (lease.cluster, lease.pool) == (request.cluster, request.pool)
        return ours and lease.machine and lease.token not in kept

    patience = terms.release_timeout_s if failure else SURPLUS_TIMEOUT_S
    if not any(lease.open and given_up(lease) for lease in book.leases.values()):
        return CreateOutcome(state, failure, TeardownProof(), engine.placed)
    used = {lease.provider for lease in book.leases.values() if lease.open and given_up(lease)}
    giveback = DeleteRequest(request.cluster, stage.now() + patience)
    proof = delete_leases(giveback, given_up, {name: landlords[name] for name in used & set(landlords)}, book, stage)
    return CreateOutcome(state, failure, proof, engine.placed)


def _lease_state(book: LedgerSession, held: SlotLease) -> EventKind:
    return next(lease.state for lease in book.leases.values() if lease.token == held.token)


def _record_joined(
    request: PoolRequest, landlords: ProviderApis, book: LedgerSession, state: PoolState, stage: Scheduler
) -> None:
    """Note the complete gang: from here on a failed change of the pool leaves these machines alone."""
    accounts = {name: item.account for name, item in landlords.items()}
    known = {lease.token: lease for lease in book.leases.values()}
    for slot in state.slots:
        held: SlotLease | None = slot.held
        if held is not None and known[held.token].state != "joined":
            book.note(lease_event(request, accounts, held, stage.now(), "joined"))
