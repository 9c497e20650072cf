# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a pool of machines: all or nothing, with an intent in the ledger before every create call."""

from __future__ import annotations

import dataclasses
import functools
import secrets
import typing as t

from ...module_utils._model.errors import MusterError, ProviderError, RefusedError
from ...module_utils._model.lease import InstanceName, OrderUnsettled, TeardownProof
from ...module_utils._model.ledger import EventKind, Lease
from ...module_utils._model.machine_memory import MachineMemory, MachineNote
from ...module_utils._model.offer import Offer, Order
from ...module_utils._model.timestamps import parse_time
from .api import Prober, ProviderApi, Scheduler, ask_for_id, await_answer, explain_failure, read_identities
from .bill.known_bill import describe_pool, find_clock_offset, format_price, use_server_time
from .bill.listing_rules import find_account_problem, index_leases, list_shown
from .bill.teardown_proof import add_billing
from .create_adopt import Listings, find_strays, find_surplus, initial_state, pool_leases, rank_offers
from .create_plan import decide
from .create_reduce import advance, reduce
from .create_state import (
    AccountListed,
    Choice,
    CreateAction,
    CreateEvent,
    DeleteInstance,
    DeletionAnswered,
    Finish,
    ListAccount,
    MachineProbed,
    MachineRead,
    OrderAnswered,
    OrderSent,
    PlaceOrder,
    PoolRequest,
    PoolState,
    ProbeMachine,
    ReadMachine,
    SlotLease,
    WaitUntil,
)
from .delete import AccountApis, delete_leases, list_account, list_accounts
from .delete_state import DeleteRequest
from .ledger.ledger_events import create_events, lease_event, pending_event, second_events
from .ledger.ledger_session import LedgerSession
from .readiness import ProbeReport
from .reconcile import reconcile

ProviderApis = t.Mapping[str, ProviderApi]
ReportLine = t.Callable[[str], None]
Call = t.Callable[[], CreateEvent]
Remember = t.Callable[[MachineNote], str]
_CALL_LIMIT_S = 600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """What every order of a pool carries, and how long to try to delete a gang that cannot be completed."""

    ssh_public_key: str | None = None
    user_data: str | None = dataclasses.field(default=None, repr=False)
    release_timeout_s: float = 900.0


@dataclasses.dataclass(frozen=True, slots=True)
class CreateOutcome:
    """The end of provisioning. ``failure`` is empty for a complete pool; ``proof`` covers what was deleted.

    ``deadline`` is when the first of the leases that remain is due.
    """

    state: PoolState
    failure: str
    proof: TeardownProof
    order_count: int
    deadline: str | None = None


def generate_token(taken: t.Collection[str]) -> str:
    """Return a token that this ledger has never seen."""
    while (token := secrets.token_hex(4)) in taken:
        pass
    return token


class _CreateEffects:
    """Calls to providers, ledger lines and progress while a pool is created."""

    def __init__(
        self,
        providers: ProviderApis,
        prober: Prober | None,
        session: LedgerSession,
        scheduler: Scheduler,
        terms: Terms,
        tokens: t.Callable[[t.Collection[str]], str],
        report: ReportLine,
        is_abandoned: t.Callable[[], bool],
        remember: Remember,
    ) -> None:
        self._providers = providers
        self._accounts = read_identities(providers)
        self._prober = prober
        self._session = session
        self._scheduler = scheduler
        self._terms = terms
        self._tokens = tokens
        self._report = report
        self._is_abandoned = is_abandoned
        self._remember = remember
        self.order_count = 0

    def decide(self, state: PoolState, now: float) -> tuple[CreateAction, ...] | WaitUntil | Finish:
        return decide(state, now)

    def tick(self, state: PoolState, now: float) -> PoolState:
        if self._is_abandoned() and not state.failure:
            return dataclasses.replace(state, failure="the ansible-playbook that asked for it has ended")
        after = state if state.failure else advance(state, now)
        self._keep_notes(state, after)
        return after

    def _keep_notes(self, before: PoolState, after: PoolState) -> None:
        """Keep what was wrong with machines, before they are deleted: the next call is not to rent them again."""
        for note in after.notes[len(before.notes) :]:
            if problem := self._remember(note):
                self._report(f"warning: {problem}")

    def start(self, state: PoolState, action: CreateAction) -> tuple[PoolState, Call | None]:
        if isinstance(action, PlaceOrder):
            return self._place(state, action)
        state = dataclasses.replace(state, in_flight=state.in_flight | {action.key})
        if isinstance(action, ListAccount):
            return state, lambda: list_account(self._providers[action.provider], self._scheduler).listing
        if isinstance(action, DeleteInstance):
            return state, lambda: self._delete(action)
        if isinstance(action, ReadMachine):
            return state, lambda: self._read_machine(action)
        return state, lambda: self._probe(action)

    def apply(self, state: PoolState, event: CreateEvent) -> PoolState:
        after = reduce(state, event)
        self._report_progress(state, after)
        for line in create_events(state, event, after, self._accounts):
            self._session.record(line)
        self._keep_notes(state, after)
        if self._session.problem and not after.failure:
            after = dataclasses.replace(after, failure=self._session.problem)
        return after

    def _report_progress(self, old: PoolState, new: PoolState) -> None:
        for line in new.history[len(old.history) :]:
            self._report(line)
        if new.ready_count != old.ready_count:
            self._report(f"{new.request.label}: {new.ready_count} of {len(new.slots)} ready")

    def _place(self, state: PoolState, action: PlaceOrder) -> tuple[PoolState, Call | None]:
        request, choice = state.request, action.choice
        token = self._tokens(self._session.tokens)
        name = str(InstanceName(request.cluster, request.pool, action.slot, token))
        after = reduce(state, OrderSent(self._scheduler.now(), action.slot, choice, token, name))
        lease = after.slots[action.slot].lease
        try:
            if lease is not None:
                self._session.record_intent(
                    pending_event(request, self._accounts, lease, self._scheduler.now(), "intent")
                )
        except MusterError as error:
            return dataclasses.replace(state, failure=str(error)), None
        if not self.order_count:
            advice = "After an interruption run the same command again, or teardown to delete everything"
            self._report(f"{request.label}: ordering machines. {advice}")
        self.order_count += 1
        order = self._order(request, choice, token, name)
        after = dataclasses.replace(after, in_flight=after.in_flight | {action.key})
        return after, lambda: self._create(action.slot, choice.offer.provider, order)

    def _order(self, request: PoolRequest, choice: Choice, token: str, name: str) -> Order:
        candidate = request.candidates[choice.tier]
        return Order(
            token=token,
            name=name,
            offer=choice.offer,
            cluster=request.cluster,
            pool=request.pool,
            count=request.count if request.is_cluster else 1,
            image=candidate.image,
            disk_gib=candidate.disk_gib,
            ports=candidate.ports,
            ssh_public_key=self._terms.ssh_public_key,
            user_data=self._terms.user_data,
            deadline=request.deadline,
        )

    def _create(self, slot: int, provider: str, order: Order) -> OrderAnswered:
        try:
            answer = self._providers[provider].create(order)
        except Exception as error:
            answer = OrderUnsettled(explain_failure(error))
        return OrderAnswered(self._scheduler.now(), slot, answer)

    def _delete(self, action: DeleteInstance) -> DeletionAnswered:
        instance = action.deletion.instance
        try:
            existed = self._providers[instance.provider].delete(instance)
        except Exception as error:
            return DeletionAnswered(self._scheduler.now(), action.deletion, explain_failure(error))
        return DeletionAnswered(self._scheduler.now(), action.deletion, existed=existed)

    def _read_machine(self, action: ReadMachine) -> MachineRead:
        instance = action.instance
        exists, problem = ask_for_id(self._providers[instance.provider], instance)
        return MachineRead(self._scheduler.now(), action.slot, instance.token or "", exists, problem)

    def _probe(self, action: ProbeMachine) -> MachineProbed:
        if self._prober is None:
            raise ValueError("a pool with a readiness gate needs a prober")
        try:
            report = self._prober.probe(action.machine, action.ordered)
        except Exception as error:
            report = ProbeReport("not_yet", problems=(explain_failure(error),))
        return MachineProbed(self._scheduler.now(), action.slot, action.token, action.machine.id, report)


def read_pool(
    request: PoolRequest,
    providers: ProviderApis,
    session: LedgerSession,
    scheduler: Scheduler,
    memory: MachineMemory | None = None,
) -> PoolState:
    """Return the pool's state before anything is done: adopted machines, and offers unless all of them are ready.

    Only reads. Raises ProviderError when an account cannot be listed, because then nothing may be created, and when
    machines are missing but no offer can be read.
    """
    needed = {str(candidate.provider) for candidate in request.candidates}
    needed |= {lease.provider for lease in pool_leases(request, session.leases.values()) if lease.open}
    _check_accounts(request, providers, session, needed)
    listed = _list_accounts({name: providers[name] for name in needed}, scheduler)
    listings = {name: item.instances for name, item in listed.items()}
    _check_listings(request, providers, session, listings)
    traits = {name: item.traits for name, item in providers.items()}
    request, clocks = use_server_time(request, listed)
    state = initial_state(request, session.leases.values(), listings, traits, scheduler.now())
    _refuse_to_shrink(state, session.leases.values())
    _unrecorded, returned = find_strays(request, tuple(session.leases.values()), listings)
    state = dataclasses.replace(
        state,
        returned_at=frozenset(item.provider for item in returned),
        memory=memory or MachineMemory(),
        history=(*clocks, *state.history),
        clock_offsets={name: find_clock_offset(item) for name, item in listed.items()},
    )
    if all(slot.phase == "ready" for slot in state.slots):
        return rank_offers(state, (), scheduler.now())
    # Also when every machine is ordered: an order may never take effect, or the machine may be unusable.
    offers, problems = _read_offers(request, providers, scheduler)
    if problems and not offers and any(slot.lease is None for slot in state.slots):
        raise ProviderError(f"no offers could be read: {'; '.join(problems)}")
    return rank_offers(state, offers, scheduler.now())


def _check_accounts(request: PoolRequest, providers: ProviderApis, session: LedgerSession, needed: set[str]) -> None:
    missing = sorted(needed - set(providers))
    if missing:
        raise ProviderError(
            f"no credentials for {', '.join(missing)}",
            "Set its environment variable, add it to providers, or leave its candidates out",
        )


def _check_listings(request: PoolRequest, providers: ProviderApis, session: LedgerSession, listings: Listings) -> None:
    """Refuse to order beside machines of this cluster that the ledger lacks, or in an account that may be another."""
    leases = tuple(session.leases.values())
    unrecorded, _returned = find_strays(request, leases, listings)
    if unrecorded:
        names = ", ".join(f"{item.name} ({item.id} at {item.provider})" for item in unrecorded)
        raise ProviderError(
            f"nothing is ordered: of cluster {request.cluster} are listed, but not in its ledger: {names}",
            "Restore the ledger, delete them with reap -e muster_reap_orphans=delete, or choose another muster_cluster",
        )
    index = index_leases(request.cluster, leases, lambda _lease: False)
    identities = read_identities(providers)
    for lease in pool_leases(request, leases):
        shown = list_shown(listings.get(lease.provider, ()), index)
        # A running machine is missing from the listing of another account.
        problem = find_account_problem(lease, identities.get(lease.provider), leases, shown) if lease.open else ""
        if problem:
            raise ProviderError(f"nothing is ordered: {lease.name} {problem}")


def _refuse_to_shrink(state: PoolState, leases: t.Collection[Lease]) -> None:
    """Refuse to end machines that work, with what is on them, because a smaller number was given or none."""
    surplus = {} if state.request.shrink else find_surplus(state, leases)
    if surplus:
        request, whole = state.request, max(surplus) + 1
        names = ", ".join(
            f"{lease.name} ({format_price(lease.price_usd_per_hour)}, run {lease.run_id or 'none'})"
            for lease in surplus.values()
        )
        raise RefusedError(
            f"{request.label}: nothing is done: rented_nodes_count is {request.count}, and {names} would be terminated",
            f"Set rented_nodes_count: {whole}, or fetch what is on them and set rented_nodes_shrink: true",
        )


def _list_accounts(providers: AccountApis, scheduler: Scheduler) -> dict[str, AccountListed]:
    listings = {}
    for item in list_accounts(providers, scheduler, scheduler.now() + _CALL_LIMIT_S):
        name, problem = item.listing.provider, item.listing.problem
        if problem:
            raise ProviderError(f"nothing is ordered, because {name} cannot be listed: {problem}")
        listings[name] = item.listing
    return listings


def _read_offers(request: PoolRequest, providers: ProviderApis, scheduler: Scheduler) -> tuple[list[Offer], list[str]]:
    """Return the offers of all candidates, and a problem for each one whose provider did not answer."""
    offers: list[Offer] = []
    problems: list[str] = []
    works = [
        scheduler.submit(functools.partial(providers[str(item.provider)].offers, item, request.count))
        for item in request.candidates
    ]
    for work in works:
        try:
            found = await_answer(scheduler, work, scheduler.now() + _CALL_LIMIT_S)
        except Exception as error:
            problems.append(explain_failure(error))
        else:
            offers += [offer for offer in found if offer not in offers]
    return offers, problems


def create_pool(
    request: PoolRequest,
    providers: ProviderApis,
    session: LedgerSession,
    scheduler: Scheduler,
    *,
    prober: Prober | None,
    terms: Terms,
    tokens: t.Callable[[t.Collection[str]], str] = generate_token,
    report: ReportLine = lambda _line: None,
    is_abandoned: t.Callable[[], bool] = lambda: False,
    memory: MachineMemory | None = None,
    remember: Remember = lambda _note: "",
) -> CreateOutcome:
    """Create what a pool lacks; return when it is complete, or when an incomplete gang is deleted again.

    :param prober: looks at machines over SSH; None only when the request has no gate.
    :param report: gets a line for each event that matters to the person who waits.
    :param is_abandoned: whether the caller has ended: then the gang is deleted, like one that cannot be completed.
    :param memory: of the machines of earlier calls. :param remember: keeps a note for later ones; returns why it could
        not, empty where it could.
    """
    state = read_pool(request, providers, session, scheduler, memory)
    request = state.request
    for line in state.history:
        report(line)
    _record_awaited(request, providers, session, state, scheduler)
    for event in second_events(state, state.deletions, read_identities(providers), scheduler.now()):
        session.record(event)
    effects = _CreateEffects(providers, prober, session, scheduler, terms, tokens, report, is_abandoned, remember)
    state, end = reconcile(effects, state, scheduler)
    if not end.reason:
        _record_joined(request, providers, session, state, scheduler)
    failure = end.reason or session.problem
    if session.is_overtaken:
        return CreateOutcome(state, _explain_overtaken(failure, session), TeardownProof(), effects.order_count)
    kept = tuple(slot for slot in state.slots if slot.lease and (slot.lease.protected or not failure))
    kept_tokens = {slot.lease.token for slot in kept if slot.lease}
    kept_pool = dataclasses.replace(state, slots=kept)
    for line in describe_pool(kept_pool, read_identities(providers), session.leases.values(), scheduler.now()):
        report(line)

    def is_surplus(lease: Lease) -> bool:
        of_pool = (lease.cluster, lease.pool) == (request.cluster, request.pool)
        # Machines that are listed again after they were proved gone are due in every pool.
        return lease.machine and lease.token not in kept_tokens and (of_pool or not lease.open)

    used = {lease.provider for lease in session.leases.values() if lease.open and is_surplus(lease)}
    used |= state.returned_at
    deadline = _first_deadline(session, kept_tokens)
    left = _list_seconds(state, kept_tokens)
    if not used:
        return CreateOutcome(state, failure, add_billing(TeardownProof(), left), effects.order_count, deadline)
    deletion = DeleteRequest(request.cluster, scheduler.now() + terms.release_timeout_s)
    apis = {name: providers[name] for name in used & set(providers)}
    proof = add_billing(delete_leases(deletion, is_surplus, apis, session, scheduler, report), left)
    return CreateOutcome(state, failure, proof, effects.order_count, deadline)


def _list_seconds(state: PoolState, kept_tokens: t.Collection[str]) -> list[dict[str, t.Any]]:
    """Return, as a proof has them, the machines beside the one of their order that are not proved gone."""
    return [
        {
            "token": item.instance.token,
            "resource": item.instance.resource,
            "provider": item.instance.provider,
            "ids": [item.instance.id],
            "name": item.instance.name,
            "usd_per_hour": item.price,
            "problem": "a second machine of one order, not proved gone: run this again",
            "delete_failed": item.stuck,
        }
        for item in state.deletions
        if item.instance.token in kept_tokens
    ]


def _first_deadline(session: LedgerSession, tokens: t.Collection[str]) -> str | None:
    known = [lease.deadline for lease in session.leases.values() if lease.token in tokens and lease.deadline]
    return min(known, key=parse_time, default=None)


def _explain_overtaken(failure: str, session: LedgerSession) -> str:
    """Return the failure of a call whose ledger another controller has: what was ordered is in it, and that one's."""
    names = ", ".join(sorted(lease.name for lease in session.leases.values() if lease.open and lease.machine))
    left = f"; it has {names} in its ledger, so nothing is deleted from here" if names else ""
    return f"{failure}{left}"


def _lease_state(session: LedgerSession, slot_lease: SlotLease) -> EventKind:
    return next(lease.state for lease in session.leases.values() if lease.token == slot_lease.token)


def _record_joined(
    request: PoolRequest, providers: ProviderApis, session: LedgerSession, state: PoolState, scheduler: Scheduler
) -> None:
    """Record the complete gang: a later, failed change of the pool does not touch these machines.

    What was complete before is due when this call says, where the provider does not end it itself before that.
    """
    accounts = read_identities(providers)
    leases = {lease.token: lease for lease in session.leases.values()}
    for slot in state.slots:
        if slot.lease is not None:
            before = leases[slot.lease.token]
            identity = accounts[slot.lease.provider]
            is_new_credential = identity.fingerprint not in before.fingerprints or (identity.api or None) not in (
                *before.apis,
                None,
            )
            is_fixed = before.deadline is not None and state.traits[slot.lease.provider].keeps_deadline
            event = lease_event(request, accounts, slot.lease, scheduler.now(), "joined")
            if before.state != "joined" or is_new_credential:
                session.record(dataclasses.replace(event, deadline=before.deadline) if is_fixed else event)
            elif (request.deadline and not is_fixed) or (slot.lease.price or 0.0) > (before.price_usd_per_hour or 0.0):
                deadline = None if is_fixed else request.deadline
                session.record(
                    dataclasses.replace(event, run_id=None, release=None, max_cost_usd=None, deadline=deadline)
                )


def _record_awaited(
    request: PoolRequest, providers: ProviderApis, session: LedgerSession, state: PoolState, scheduler: Scheduler
) -> None:
    """Record that this controller waits for what an earlier one ordered."""
    accounts = read_identities(providers)
    for slot in state.slots:
        if slot.lease is not None and not slot.lease.protected:
            kind = _lease_state(session, slot.lease)
            session.record(pending_event(request, accounts, slot.lease, scheduler.now(), kind))
