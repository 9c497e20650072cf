# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The price caps, held against offers before an order and against what is billed after it.

What is billed is the listed price of every machine that is not proved gone, or that of its offer where it has none.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .create_state import Choice, MachineSlot, PoolRequest, PoolState, SlotLease

# Listings and offers are rounded apart.
_ROUNDING = 1.001


@dataclasses.dataclass(frozen=True, slots=True)
class PriceBudget:
    """What may still be spent, in dollars per hour, when ``open_slots`` orders are to be placed."""

    request: PoolRequest
    spent: float
    open_slots: int
    cheapest: t.Mapping[int, float]

    @classmethod
    def of(cls, state: PoolState) -> PriceBudget:
        """Return what is left of the caps beside everything that bills now."""
        cheapest: dict[int, float] = {}
        for choice in state.choices:
            tier = 0 if state.request.mixed else choice.tier
            price = choice.offer.price_usd_per_hour
            cheapest[tier] = min(price, cheapest.get(tier, price))
        spent = sum(price or 0.0 for _name, price in list_billed(state))
        return cls(state.request, spent, sum(slot.phase == "wanted" for slot in state.slots), cheapest)

    def allows(self, choice: Choice) -> bool:
        """Return whether the gang can still be completed within the caps after this order."""
        request, price = self.request, choice.offer.price_usd_per_hour
        cap = machine_cap(request, choice.tier)
        if cap is not None and price / request.machines_per_order > cap + 1e-9:
            return False
        if request.max_total_usd_per_hour is None:
            return True
        rest = max(0, self.open_slots - 1) * self.cheapest[0 if request.mixed else choice.tier]
        return self.spent + price + rest <= request.max_total_usd_per_hour + 1e-9

    def spend(self, choice: Choice) -> PriceBudget:
        """Return the budget after an order."""
        price = choice.offer.price_usd_per_hour
        return dataclasses.replace(self, spent=self.spent + price, open_slots=self.open_slots - 1)


def machine_cap(request: PoolRequest, tier: int) -> float | None:
    """Return the highest price of one machine of a candidate, by the pool's cap and the candidate's own."""
    caps = (request.max_price_usd_per_hour, request.candidates[tier].max_price_usd_per_hour)
    return min((cap for cap in caps if cap is not None), default=None)


def list_billed(state: PoolState) -> list[tuple[str, float | None]]:
    """Return name and price of all that bills: the machines in slots, and those that are not proved gone."""
    in_slots = [(slot.lease.name, slot.lease.price) for slot in state.slots if slot.lease and slot.phase != "wanted"]
    return [*in_slots, *((item.instance.name, item.price) for item in state.deletions)]


def find_broken_cap(state: PoolState) -> str:
    """Return which cap is broken by what is billed, empty when none is."""
    request = state.request
    for slot in state.slots:
        lease = slot.lease
        cap = _slot_cap(state, slot)
        if lease and lease.instance and lease.price is not None and cap is not None:
            price = lease.price / request.machines_per_order
            if price > cap * _ROUNDING:
                return f"{lease.name} bills {price:.2f} USD per hour, more than the cap of {cap:.2f}{_kept(lease)}"
    total = sum(price or 0.0 for _name, price in list_billed(state))
    limit = request.max_total_usd_per_hour
    if limit is not None and total > limit * _ROUNDING:
        names = ", ".join(name for name, _price in list_billed(state))
        return f"{names} bill {total:.2f} USD per hour, more than max_total_usd_per_hour of {limit:.2f}"
    return ""


def _kept(lease: SlotLease) -> str:
    return " (it is kept, because it was complete before: remove_nodes deletes it)" if lease.protected else ""


def _slot_cap(state: PoolState, slot: MachineSlot) -> float | None:
    """Return the cap of a slot's machine; one that an earlier call ordered has the widest of its provider's."""
    request = state.request
    if slot.choice is not None:
        return machine_cap(request, slot.choice.tier)
    tiers = [
        tier for tier, item in enumerate(request.candidates) if slot.lease and item.provider == slot.lease.provider
    ]
    caps = [machine_cap(request, tier) for tier in tiers] or [request.max_price_usd_per_hour]
    return None if None in caps else max(cap for cap in caps if cap is not None)


def is_blocked_by_deletions(state: PoolState) -> bool:
    """Return whether an offer would fit the caps if the machines that are being deleted were gone."""
    if not any(not item.stuck for item in state.deletions):
        return False
    stuck = tuple(item for item in state.deletions if item.stuck)
    now, later = PriceBudget.of(state), PriceBudget.of(dataclasses.replace(state, deletions=stuck))
    choices = [item for item in state.choices if state.request.mixed or item.tier == state.tier]
    return not any(now.allows(item) for item in choices) and any(later.allows(item) for item in choices)
