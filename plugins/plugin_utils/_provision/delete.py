# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delete leases and prove it: the account calls, the ledger lines and the proof of what a deletion did.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...module_utils._model.errors import ApiError, TransportError
from ...module_utils._model.lease import LeaseProof, Leftover, ProofKind, TeardownProof
from ...module_utils._model.ledger import Lease, higher_price
from ...module_utils._model.timestamps import format_time
from . import delete_plan
from .api import AccountApi, Scheduler, await_answer, explain_failure, read_identities
from .bill import BillEntry, KnownBill, Sight, read_bill, sum_prices
from .create_state import AccountListed, Finish, ListAccount, QueuedDeletion, WaitUntil
from .delete_state import (
    ABSENCE_GAP_S,
    DELETE_AGAIN_S,
    DeleteAction,
    DeleteAnswered,
    DeleteEvent,
    DeleteListing,
    DeleteRequest,
    DeleteState,
    Termination,
    machine_absence_gap,
)
from .due_rules import RunView
from .ledger.ledger_events import delete_events, termination_event
from .ledger.ledger_session import LedgerSession
from .listing_rules import LeaseKey
from .reconcile import reconcile

AccountApis = t.Mapping[str, AccountApi]
ReportLine = t.Callable[[str], None]
_HOLDING = ("created", "adopted", "joined")
# For what else carries our name, when the time for the machines themselves is over.
_LEFTOVERS_S = 10.0


def is_credential_error(error: Exception) -> bool:
    """Return whether an error is about the credentials, so that no retry helps if it lasts."""
    return isinstance(error, ApiError) and error.status in (401, 403)


def is_request_error(error: Exception) -> bool:
    """Return whether an error is about the request: such as a delete of what has ended, or may not be deleted.

    One with a success status was told by the body.
    """
    return isinstance(error, ApiError) and error.status in (200, 400, 409, 422)


class _DeleteEffects:
    """Calls to accounts and ledger lines while leases are deleted."""

    def __init__(self, accounts: AccountApis, session: LedgerSession, scheduler: Scheduler, report: ReportLine) -> None:
        self._accounts = accounts
        self._session = session
        self._scheduler = scheduler
        self._report = report
        self._reported: set[LeaseKey] = set()
        self._stuck: set[LeaseKey] = set()

    def decide(self, state: DeleteState, now: float) -> tuple[DeleteAction, ...] | WaitUntil | Finish:
        return delete_plan.decide(state, now)

    def start(self, state: DeleteState, action: DeleteAction) -> tuple[DeleteState, t.Callable[[], DeleteEvent]]:
        state = dataclasses.replace(state, in_flight=state.in_flight | {action.key})
        if isinstance(action, ListAccount):
            return state, lambda: list_account(self._accounts[action.provider], self._scheduler)
        return state, lambda: self._delete(action.deletion)

    def apply(self, state: DeleteState, event: DeleteEvent) -> DeleteState:
        after = delete_plan.reduce(state, event)
        for line in delete_events(state, event, after, self._scheduler.now()):
            self._session.record(line)
        self._report_waits(after)
        self._report_stuck(after)
        return after

    def _report_waits(self, state: DeleteState) -> None:
        """Report once for each machine that its proof has begun, which takes a minute or more."""
        begun = [
            item
            for key, item in state.terminations.items()
            if len(item.absent_at) == 1 and key not in self._reported and not _is_quick(state, item)
        ]
        self._reported |= {item.key for item in begun}
        for name, items in _group_by_provider(begun).items():
            self._report(
                f"{_join_names(items)}: no longer listed at {name}; proved gone when no listing has shown it for "
                f"{delete_plan.absence_gap(state, items[0]):.0f} s"
            )

    def _report_stuck(self, state: DeleteState) -> None:
        """Report once for each machine that a delete was accepted of and that does not end."""
        now, limit_s = self._scheduler.now(), state.request.timeout_at - state.started_at
        for key, item in state.terminations.items():
            since = now - min(item.acknowledged_at.values(), default=now)
            if item.listed_instances and since >= DELETE_AGAIN_S and key not in self._stuck:
                self._stuck.add(key)
                shown = item.listed_instances[0]
                self._report(
                    f"{item.lease.name}: is still listed at {item.lease.provider} ({shown.detail or shown.state}) "
                    f"{since:.0f} s after its delete; trying for {limit_s:.0f} s in all (release_timeout_s)"
                )

    def tick(self, state: DeleteState, now: float) -> DeleteState:
        return delete_plan.tick(state, now)

    def _delete(self, deletion: QueuedDeletion) -> DeleteAnswered:
        try:
            existed = self._accounts[deletion.instance.provider].delete(deletion.instance)
        except Exception as error:
            return DeleteAnswered(
                self._scheduler.now(),
                deletion,
                problem=explain_failure(error),
                is_refused=is_credential_error(error),
                is_denied=is_request_error(error),
            )
        return DeleteAnswered(self._scheduler.now(), deletion, existed)


def _is_quick(state: DeleteState, termination: Termination) -> bool:
    return delete_plan.absence_gap(state, termination) <= ABSENCE_GAP_S


def _group_by_provider(items: t.Iterable[Termination]) -> dict[str, list[Termination]]:
    groups: dict[str, list[Termination]] = {}
    for item in items:
        groups.setdefault(item.lease.provider, []).append(item)
    return groups


def _join_names(items: t.Iterable[Termination]) -> str:
    return ", ".join(sorted(item.lease.name for item in items))


def _proof_time(state: DeleteState, termination: Termination) -> float:
    """Return how long the proof of a lease takes from the start: an order without an answer may still take effect."""
    lease = termination.lease
    gap_s = delete_plan.absence_gap(state, termination)
    if lease.machine and not lease.settled:
        # It may be found yet, and deleted by its id.
        gap_s = machine_absence_gap(state.traits[lease.provider])
    return gap_s + max(0.0, termination.absent_from - state.started_at)


def _report_short_time(state: DeleteState, report: ReportLine) -> None:
    """Warn, before anything is deleted, where the time is too short for a proof: it is deleted all the same."""
    time_s = state.request.timeout_at - state.started_at
    open_terminations = [item for item in state.terminations.values() if not item.is_permanent]
    for name, items in _group_by_provider(open_terminations).items():
        gap_s = max(_proof_time(state, item) for item in items)
        if time_s <= gap_s:
            unanswered = [item for item in items if not item.lease.settled]
            order = f" ({_join_names(unanswered)} is an order without an answer)" if unanswered else ""
            report(
                f"warning: {time_s:.0f} s are too few to prove {_join_names(items)} gone: the listings of {name} have "
                f"to lack it for {gap_s:.0f} s{order}. It is deleted, and this fails; give a longer release_timeout_s "
                f"(teardown_timeout_s of the role)"
            )


def list_account(account: AccountApi, scheduler: Scheduler) -> DeleteListing:
    """List one account; an error becomes part of the result."""
    requested_at = scheduler.now()
    try:
        listing = account.read_listing()
    except Exception as error:
        problem = explain_failure(error)
        return DeleteListing(
            AccountListed(scheduler.now(), requested_at, account.name, problem=problem), is_credential_error(error)
        )
    at = scheduler.now()
    return DeleteListing(
        AccountListed(
            at,
            requested_at,
            account.name,
            listing.instances,
            age_s=listing.age_s,
            clock_offset_s=listing.clock_offset_s,
        )
    )


def list_accounts(accounts: AccountApis, scheduler: Scheduler, until: float) -> list[DeleteListing]:
    """List all accounts at the same time; one without an answer at ``until`` is a listing with that problem."""
    works = {
        name: scheduler.submit(functools.partial(list_account, item, scheduler)) for name, item in accounts.items()
    }
    listings = []
    for name, work in works.items():
        try:
            listings.append(await_answer(scheduler, work, until))
        except TransportError as error:
            now = scheduler.now()
            listings.append(DeleteListing(AccountListed(now, now, name, problem=str(error))))
    return listings


def delete_leases(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    accounts: AccountApis,
    session: LedgerSession,
    scheduler: Scheduler,
    report: ReportLine = lambda _line: None,
    listings: t.Iterable[DeleteListing] = (),
) -> TeardownProof:
    """Delete every lease that ``scope`` selects and prove it; return the proof, clean or not.

    Never raises for a provider that fails: what is not proved absent is in the proof's ``billing``.

    :param report: gets a line when a proof begins that takes long, and one when there is too little time for it.
    :param listings: what the accounts have answered before.
    """
    state = _initial_state(request, scope, accounts, session, scheduler.now())
    _report_short_time(state, report)
    for termination in state.terminations.values():
        if termination.lease.state in _HOLDING and not state.account_problem(termination.lease):
            session.record(termination_event(termination, scheduler.now(), "draining", termination.lease.id))
    if not (request.yields and session.is_overtaken):
        effects = _DeleteEffects(accounts, session, scheduler, report)
        for listing in listings:
            state = effects.apply(state, listing)
        state, _end = reconcile(effects, state, scheduler)
    return build_proof(state, _list_leftovers(state, accounts, scheduler), scheduler.now())


def preview_deletion(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    accounts: AccountApis,
    session: LedgerSession,
    scheduler: Scheduler,
    listings: t.Iterable[DeleteListing],
    reasons: t.Mapping[LeaseKey, str],
) -> tuple[tuple[BillEntry, ...], TeardownProof]:
    """Return what a deletion would end, and what it would leave; nothing is written or deleted.

    :param listings: one of each account.
    :param reasons: why leases are due.
    """
    state = _initial_state(request, scope, accounts, session, scheduler.now())
    for listing in listings:
        state = delete_plan.reduce(state, listing)
    ending = [item for item in state.terminations.values() if not item.problem]
    leftovers = _list_leftovers(state, accounts, scheduler)
    stuck = [item for item in state.terminations.values() if item.problem]
    proof = build_proof(state, leftovers, scheduler.now(), stuck)
    return tuple(_would_end(item, reasons.get(item.key, "")) for item in ending), proof


def _would_end(termination: Termination, reason: str) -> BillEntry:
    lease, listed = termination.lease, termination.listed_instances
    price = higher_price(lease.price_usd_per_hour, listed[0].price_usd_per_hour if listed else None)
    problem = "" if listed else "in the ledger, not listed: gone, or hidden and billing"
    free = 0.0 if not lease.machine else price
    return BillEntry(
        "due",
        lease.provider,
        lease.name,
        lease.resource,
        termination.ids,
        lease.token,
        free,
        lease.deadline,
        reason,
        problem,
    )


def _initial_state(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    accounts: AccountApis,
    session: LedgerSession,
    now: float,
) -> DeleteState:
    traits = {name: item.traits for name, item in accounts.items()}
    leases = tuple(session.leases.values())
    return delete_plan.initial_state(request, leases, scope, read_identities(accounts), traits, now)


def _list_leftovers(state: DeleteState, accounts: AccountApis, scheduler: Scheduler) -> tuple[Leftover, ...]:
    works = {
        name: scheduler.submit(functools.partial(accounts[name].leftovers, {state.request.cluster}))
        for name in sorted(state.listings)
    }
    until = max(state.request.timeout_at, scheduler.now() + _LEFTOVERS_S)
    leftovers: list[Leftover] = []
    for name, work in works.items():
        try:
            found: tuple[Leftover, ...] = await_answer(scheduler, work, until)
            leftovers.extend(found)
        except Exception as error:
            leftovers.append(Leftover("listing", name, "unknown", explain_failure(error)))
    return tuple(leftovers)


def known_bill(state: DeleteState, now: float, runs: t.Mapping[str, RunView] | None = None) -> KnownBill:
    """Return what is known of the bill beside what is being deleted."""
    ending = [item.lease for item in state.terminations.values()]
    return read_bill(state.index, state_sights(state), now, runs, ending)


def state_sights(state: DeleteState) -> dict[str, Sight]:
    """Return what was seen of each account."""
    return {
        name: Sight(identity, state.listings.get(name), state.shown.get(name, frozenset()))
        for name, identity in state.accounts.items()
    }


def build_proof(
    state: DeleteState, leftovers: tuple[Leftover, ...], now: float, unproved: t.Sequence[Termination] | None = None
) -> TeardownProof:
    """Return the proof that a final state amounts to; ``unproved`` are those terminations that cannot come to an end.

    Without it they are those that have come to none.
    """
    terminations = state.terminations.values()
    bill = known_bill(state, now)
    if unproved is None:
        unproved = [item for item in terminations if not item.is_verified]
    billing = [_billing_entry(termination, state) for termination in unproved]
    billing += [_beyond_entry(item) for item in bill.select("returned")]
    unlisted = sorted(_unlisted_accounts(state).items())
    billing += [{"provider": name, "problem": problem, "usd_per_hour": None} for name, problem in unlisted]
    within = [*bill.select("within_lease")]
    if state.request.whole:
        billing += [_beyond_entry(item) for item in bill.select("unseen")]
        within += bill.select("unlisted")
    orphans = [_orphan_entry(item) for item in bill.select("orphan")]
    prices = [*(item.get("usd_per_hour") for item in (*billing, *orphans)), *(item.usd_per_hour for item in leftovers)]
    return TeardownProof(
        leases=tuple(_lease_proof(termination) for termination in terminations if termination.is_verified),
        leftovers=leftovers,
        residual_usd_per_hour=sum_prices(t.cast("list[float | None]", prices)),
        unknown=tuple((item.ids[0], item.name) for item in bill.select("foreign")),
        billing=tuple(billing),
        orphans=tuple(orphans),
        within_lease=tuple(item.to_dict() for item in within),
        notes=(*bill.doubts, *bill.notes),
    )


def _lease_proof(termination: Termination) -> LeaseProof:
    """Return the proof of one lease: ended only where a delete of it was accepted."""
    lease = termination.lease
    how: ProofKind = "ended" if termination.was_taken else "never_seen_to_end" if termination.ids else "never_made"
    return LeaseProof(lease.token, lease.name, lease.id, lease.account, _absence_times(termination), how)


def _unlisted_accounts(state: DeleteState) -> dict[str, str]:
    """Return the providers whose account could not be listed, so that orphans there are unknown."""
    unlisted = {
        name: f"could not be listed in time ({state.listing_problems.get(name, 'no answer')})"
        for name in state.traits
        if name not in state.listings
    }
    return {**unlisted, **state.unlistable}


def _absence_times(termination: Termination) -> tuple[str, str]:
    first, second = termination.absent_at[:2]
    return format_time(first), format_time(second)


def _billing_entry(termination: Termination, state: DeleteState) -> dict[str, object]:
    lease = termination.lease
    listed = termination.listed_instances[0] if termination.listed_instances else None
    price = higher_price(lease.price_usd_per_hour, listed.price_usd_per_hour if listed else None)
    problem = f"still listed ({listed.detail or listed.state})" if listed else _explain_unproved(termination, state)
    return {
        "token": lease.token,
        "resource": lease.resource,
        "provider": lease.provider,
        "ids": list(termination.ids),
        "name": lease.name,
        "usd_per_hour": price,
        "problem": termination.problem or problem,
        "delete_failed": bool(termination.problem and termination.listed_instances),
    }


def _explain_unproved(termination: Termination, state: DeleteState) -> str:
    """Return why a lease that is not listed is not proved gone: the last listing, its age, or the time it needs."""
    provider = termination.lease.provider
    listing = state.listings.get(provider)
    causes = [state.listing_problems[provider]] if provider in state.listing_problems else []
    if listing and listing.age_s > ABSENCE_GAP_S:
        causes.append(f"the listing of {provider} comes from a cache and is {listing.age_s:.0f} s old")
    time_s = state.request.timeout_at - state.started_at
    if provider in state.traits and time_s <= _proof_time(state, termination):
        causes.append(f"the proof takes {_proof_time(state, termination):.0f} s")
    return f"not proved gone in time{f' ({_join(causes)})' if causes else ''}"


def _join(words: t.Iterable[str]) -> str:
    return "; ".join(words)


def _beyond_entry(item: BillEntry) -> dict[str, object]:
    return {
        "token": item.token,
        "resource": item.resource,
        "provider": item.provider,
        "ids": list(item.ids),
        "name": item.name,
        "usd_per_hour": item.usd_per_hour,
        "problem": item.problem,
        "delete_failed": False,
    }


def _orphan_entry(item: BillEntry) -> dict[str, object]:
    return {
        "provider": item.provider,
        "resource": item.resource,
        "id": item.ids[0],
        "name": item.name,
        "usd_per_hour": item.usd_per_hour,
    }
