# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delete leases and prove it: the account calls, the ledger lines and the proof of what a deletion did."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...module_utils._model.errors import ApiError, TransportError
from ...module_utils._model.lease import Leftover, TeardownProof
from ...module_utils._model.ledger import Lease
from . import delete_plan
from .api import AccountApi, Scheduler, await_answer, explain_failure, read_identities
from .bill.known_bill import BillEntry
from .bill.listing_rules import LeaseKey
from .bill.teardown_proof import build_proof, preview_end, proof_time
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
)
from .ledger.ledger_events import delete_events, termination_event
from .ledger.ledger_session import LedgerSession
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
        self._renamed: set[LeaseKey] = set()

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
        self._report_renamed(after)
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

    def _report_renamed(self, state: DeleteState) -> None:
        """Report once the machines that their provider lists under another name than the ledger."""
        for item in state.terminations.values():
            shown = [x.name for x in item.listed_instances if x.resource == item.lease.resource and not x.is_nameless]
            if any(name != item.lease.name for name in shown) and item.key not in self._renamed:
                self._renamed.add(item.key)
                self._report(f"{item.lease.name}: is listed as {', '.join(shown)} at {item.lease.provider}")

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


def _report_short_time(state: DeleteState, report: ReportLine) -> None:
    """Warn, before anything is deleted, where the time is too short for a proof: it is deleted all the same."""
    time_s = state.request.timeout_at - state.started_at
    open_terminations = [item for item in state.terminations.values() if not item.is_permanent]
    for name, items in _group_by_provider(open_terminations).items():
        gap_s = max(proof_time(state, item) for item in items)
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
    return tuple(preview_end(item, reasons.get(item.key, "")) for item in ending), proof


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
