# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deletion amounts to: the proof of its end, or in check mode what it would end."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.lease import LeaseProof, Leftover, ProofKind, TeardownProof
from ....module_utils._model.timestamps import format_time
from .. import delete_plan
from ..delete_state import ABSENCE_GAP_S, DeleteState, Termination, machine_absence_gap
from .known_bill import BillEntry, Sight, read_bill, sum_prices


def proof_time(state: DeleteState, termination: Termination) -> float:
    """Return how long the proof of a lease takes from the start: an order without an answer may still take effect."""
    lease = termination.lease
    gap_s = delete_plan.absence_gap(state, termination)
    if lease.machine and not lease.settled:
        # It may be found yet, and deleted by its id.
        gap_s = machine_absence_gap(state.traits[lease.provider])
    return gap_s + max(0.0, termination.absent_from - state.started_at)


def _list_sights(state: DeleteState) -> dict[str, Sight]:
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
    bill = read_bill(state.index, _list_sights(state), now, ending=[item.lease for item in terminations])
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


def add_billing(proof: TeardownProof, entries: t.Sequence[t.Mapping[str, t.Any]]) -> TeardownProof:
    """Return a proof with more that may bill."""
    prices = [proof.residual_usd_per_hour, *(item["usd_per_hour"] for item in entries)]
    return dataclasses.replace(proof, billing=(*proof.billing, *entries), residual_usd_per_hour=sum_prices(prices))


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
    problem = (
        "; ".join((f"still listed ({listed.detail or listed.state})", *_explain_age(lease.provider, state)))
        if listed
        else _explain_unproved(termination, state)
    )
    return {
        "token": lease.token,
        "resource": lease.resource,
        "provider": lease.provider,
        "ids": list(termination.ids),
        "name": lease.name,
        "usd_per_hour": termination.usd_per_hour,
        "problem": termination.problem or problem,
        "delete_failed": bool(termination.problem and termination.listed_instances),
    }


def _explain_unproved(termination: Termination, state: DeleteState) -> str:
    """Return why a lease that is not listed is not proved gone: the last listing, its age, or the time it needs."""
    provider = termination.lease.provider
    causes = [state.listing_problems[provider]] if provider in state.listing_problems else []
    causes += _explain_age(provider, state)
    time_s = state.request.timeout_at - state.started_at
    if provider in state.traits and time_s <= proof_time(state, termination):
        causes.append(f"the proof takes {proof_time(state, termination):.0f} s")
    return f"not proved gone in time{f' ({_join(causes)})' if causes else ''}"


def _explain_age(provider: str, state: DeleteState) -> list[str]:
    """Return that the last listing of an account is an old one, where it is."""
    listing = state.listings.get(provider)
    if listing is None or listing.age_s <= ABSENCE_GAP_S:
        return []
    return [f"the listing of {provider} comes from a cache and is {listing.age_s:.0f} s old"]


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


def preview_end(termination: Termination, reason: str) -> BillEntry:
    lease, listed = termination.lease, termination.listed_instances
    problem = "" if listed else "in the ledger, not listed: gone, or hidden and billing"
    return BillEntry(
        "due",
        lease.provider,
        lease.name,
        lease.resource,
        termination.ids,
        lease.token,
        termination.usd_per_hour if lease.machine else 0.0,
        lease.deadline,
        reason,
        problem,
        next((item.name for item in listed[:1] if not item.is_nameless and item.name != lease.name), ""),
    )
