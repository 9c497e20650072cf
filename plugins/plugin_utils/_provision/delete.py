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
from ...module_utils._model.lease import Instance, LeaseProof, Leftover, TeardownProof
from ...module_utils._model.ledger import Lease
from ...module_utils._model.timestamps import format_time
from . import delete_plan
from .api import AccountApi, Scheduler, await_answer, explain_failure, read_identities
from .create_state import AccountListed, Finish, ListAccount, QueuedDeletion, WaitUntil
from .delete_state import (
    ABSENCE_GAP_S,
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
from .listing_rules import LeaseKey, disputed_id, unknown_account
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
        gap_s = max(delete_plan.absence_gap(state, item) for item in items)
        if time_s <= gap_s:
            report(
                f"warning: {time_s:.0f} s are too few to prove {_join_names(items)} gone: the listings of {name} have "
                f"to lack it for {gap_s:.0f} s. It is deleted, and this fails; give a longer release_timeout_s "
                f"(teardown_timeout_s of the role)"
            )


def list_account(account: AccountApi, scheduler: Scheduler) -> DeleteListing:
    """List one account; an error becomes part of the result."""
    requested_at = scheduler.now()
    try:
        instances = account.list_instances()
    except Exception as error:
        problem = explain_failure(error)
        return DeleteListing(
            AccountListed(scheduler.now(), requested_at, account.name, problem=problem), is_credential_error(error)
        )
    return DeleteListing(AccountListed(scheduler.now(), requested_at, account.name, instances))


def delete_leases(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    accounts: AccountApis,
    session: LedgerSession,
    scheduler: Scheduler,
    report: ReportLine = lambda _line: None,
) -> TeardownProof:
    """Delete every lease that ``scope`` selects and prove it; return the proof, clean or not.

    Never raises for a provider that fails: what is not proved absent is in the proof's ``billing``.

    :param report: gets a line when a proof begins that takes long, and one when there is too little time for it.
    """
    state = _initial_state(request, scope, accounts, session, scheduler.now())
    _report_short_time(state, report)
    for termination in state.terminations.values():
        if termination.lease.state in _HOLDING and not termination.is_permanent:
            session.record(termination_event(termination, scheduler.now(), "draining", termination.lease.id))
    if not (request.yields and session.is_overtaken):
        state, _end = reconcile(_DeleteEffects(accounts, session, scheduler, report), state, scheduler)
    return build_proof(state, _list_leftovers(state, accounts, scheduler))


def preview_deletion(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    accounts: AccountApis,
    session: LedgerSession,
    scheduler: Scheduler,
) -> DeleteState:
    """Return what a deletion would find, from one listing of each account; nothing is written or deleted."""
    state = _initial_state(request, scope, accounts, session, scheduler.now())
    works = {
        name: scheduler.submit(functools.partial(list_account, item, scheduler)) for name, item in accounts.items()
    }
    for name, work in works.items():
        try:
            listing = await_answer(scheduler, work, request.timeout_at)
        except TransportError as error:
            now = scheduler.now()
            listing = DeleteListing(AccountListed(now, now, name, problem=str(error)))
        state = delete_plan.reduce(state, listing)
    return state


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
        for name in sorted(state.listed_accounts)
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


def build_proof(state: DeleteState, leftovers: tuple[Leftover, ...]) -> TeardownProof:
    """Return the proof that a final state amounts to."""
    terminations = state.terminations.values()
    billing = [_billing_entry(termination, state) for termination in terminations if not termination.is_verified]
    billing += [_returned_entry(item, state) for item in state.returned.values()]
    unlisted = sorted(_unlisted_accounts(state).items())
    billing += [{"provider": name, "problem": problem, "usd_per_hour": None} for name, problem in unlisted]
    billing += _unseen_leases(state) if state.request.whole else []
    orphans = [_orphan_entry(item) for item in state.orphans.values()]
    prices = [item.get("usd_per_hour") for item in (*billing, *orphans)] + [item.usd_per_hour for item in leftovers]
    known_prices = [price for price in prices if isinstance(price, (int, float))]
    return TeardownProof(
        leases=tuple(
            LeaseProof(
                termination.lease.token,
                termination.lease.name,
                termination.lease.id,
                termination.lease.account,
                _absence_times(termination),
            )
            for termination in terminations
            if termination.is_verified
        ),
        leftovers=leftovers,
        residual_usd_per_hour=round(sum(known_prices), 6) if len(known_prices) == len(prices) else None,
        unknown=tuple((item.id, item.name) for item in state.unknown.values()),
        billing=tuple(billing),
        orphans=tuple(orphans),
        within_lease=tuple(_within_entry(item, state) for item in state.within_lease.values()),
    )


def _unlisted_accounts(state: DeleteState) -> dict[str, str]:
    """Return the providers whose account could not be listed, so that orphans there are unknown."""
    unlisted = {
        name: f"could not be listed in time ({state.listing_problems.get(name, 'no answer')})"
        for name in state.traits
        if name not in state.listed_accounts
    }
    return {**unlisted, **state.unlistable}


def _absence_times(termination: Termination) -> tuple[str, str]:
    first, second = termination.absent_at[:2]
    return format_time(first), format_time(second)


def _billing_entry(termination: Termination, state: DeleteState) -> dict[str, object]:
    lease = termination.lease
    listed = termination.listed_instances[0] if termination.listed_instances else None
    price = listed.price_usd_per_hour if listed and listed.price_usd_per_hour is not None else lease.price_usd_per_hour
    cause = f" ({state.listing_problems[lease.provider]})" if lease.provider in state.listing_problems else ""
    problem = f"still listed ({listed.detail or listed.state})" if listed else f"not proved gone in time{cause}"
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


def _returned_entry(item: Instance, state: DeleteState) -> dict[str, object]:
    (lease, *_others) = state.index.by_token[item.token or ""]
    return {
        "token": lease.token,
        "resource": item.resource,
        "provider": item.provider,
        "ids": [item.id],
        "name": lease.name,
        "usd_per_hour": item.price_usd_per_hour if item.price_usd_per_hour is not None else lease.price_usd_per_hour,
        "problem": "is listed again after it was proved gone: run the reap playbook",
        "delete_failed": False,
    }


def _unseen_leases(state: DeleteState) -> list[dict[str, object]]:
    """Return the machines within their lease that cannot be seen as ours: whether they bill is unknown."""
    entries: list[dict[str, object]] = []
    for lease in state.index.leases:
        if not (lease.machine and lease.open) or lease.key in state.terminations:
            continue
        problem = _unseen_problem(lease, state)
        if problem:
            entries.append(
                {
                    "token": lease.token,
                    "resource": lease.resource,
                    "provider": lease.provider,
                    "ids": list(lease.ids),
                    "name": lease.name,
                    "usd_per_hour": lease.price_usd_per_hour,
                    "problem": f"cannot be seen: {problem}",
                    "delete_failed": False,
                }
            )
    return entries


def _unseen_problem(lease: Lease, state: DeleteState) -> str:
    identity = state.accounts.get(lease.provider)
    problem = delete_plan.find_account_problem(lease, identity)
    if not problem and lease.provider not in state.listed_accounts:
        problem = f"{lease.provider} could not be listed"
    if not problem and identity and lease.provider not in state.known_accounts:
        problem = unknown_account(lease.provider, identity)
    others = (state.unknown.get((lease.provider, key)) for key in lease.ids)
    return problem or next((disputed_id(item.id, item.name) for item in others if item), "")


def _within_entry(item: Instance, state: DeleteState) -> dict[str, object]:
    leases = state.index.by_token[item.token or ""]
    lease = next((lease for lease in leases if lease.machine and lease.open), leases[0])
    return {
        "token": lease.token,
        "resource": item.resource,
        "provider": item.provider,
        "id": item.id,
        "name": item.name,
        "usd_per_hour": item.price_usd_per_hour if item.price_usd_per_hour is not None else lease.price_usd_per_hour,
        "deadline": lease.deadline,
    }


def _orphan_entry(item: Instance) -> dict[str, object]:
    return {
        "provider": item.provider,
        "resource": item.resource,
        "id": item.id,
        "name": item.name,
        "usd_per_hour": item.price_usd_per_hour,
    }
