# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of the bill: one value, from the ledger, the accounts' listings and their clocks.

Renting, teardown, reap, the reaper, and all of them in check mode, print this value and act on it. What is not known
is None, and is named: a sum with such a part is None, too. A price is the higher one of what was offered and what is
listed.
"""

from __future__ import annotations

import dataclasses
import types
import typing as t

from ....module_utils._model.lease import AccountIdentity, Instance, Resource
from ....module_utils._model.ledger import Lease, higher_price
from ....module_utils._model.timestamps import format_time, format_whole_seconds, parse_time
from ..create_state import AccountListed, PoolRequest, PoolState
from .due_rules import RunView, find_due_leases
from .listing_rules import (
    LeaseIndex,
    LeaseKey,
    disputed_id,
    find_account_problem,
    find_leases,
    find_standing,
    index_leases,
    list_shown,
    missing_credentials,
)

# Listed: due to foreign. Not listed: unlisted (gone or hidden), unseen (in another account, or one without a listing).
BillStanding = t.Literal["due", "within_lease", "returned", "orphan", "foreign", "unlisted", "unseen"]
# A clock that is further off than this is wrong; less is the way of the network, and dates have whole seconds.
CLOCK_LIMIT_S = 120.0
_LOW_SHARE = 0.8


def find_clock_offset(listing: AccountListed) -> float:
    """Return how far the API's clock is ahead of this one, 0 where the two agree or it is not known."""
    offset = listing.clock_offset_s
    return offset if offset is not None and abs(offset) > CLOCK_LIMIT_S else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of one account: its last listing, None without one, and all tokens of ours that it has shown."""

    identity: AccountIdentity
    listing: AccountListed | None = None
    shown: frozenset[str] = frozenset()

    @property
    def clock_offset_s(self) -> float:
        """Return how far the API's clock is ahead of this one, 0 where the two agree or it is not known."""
        return find_clock_offset(self.listing) if self.listing else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class BillEntry:
    """One thing that bills, or may. ``reason`` is why it is due, ``problem`` what keeps its price from being known."""

    standing: BillStanding
    provider: str
    name: str
    resource: Resource
    ids: tuple[str, ...]
    token: str | None = None
    usd_per_hour: float | None = None
    deadline: str | None = None
    reason: str = ""
    problem: str = ""
    listed_as: str = ""

    @property
    def label(self) -> str:
        """Return its name, and the one under which its provider lists it where that is another."""
        return f"{self.name} (listed as {self.listed_as})" if self.listed_as else self.name

    def describe(self) -> str:
        """Return its name, what it costs, and why it is due or when it will be."""
        limit = f", until {self.deadline}" if self.deadline and self.standing == "within_lease" else ""
        return f"{self.label} ({format_price(self.usd_per_hour)}{f', {self.reason}' if self.reason else limit})"

    def to_dict(self) -> dict[str, t.Any]:
        """Return the form that results have."""
        return {
            "token": self.token,
            "resource": self.resource,
            "provider": self.provider,
            "id": self.ids[-1] if self.ids else None,
            "name": self.name,
            "usd_per_hour": self.usd_per_hour,
            "deadline": self.deadline,
            **({"problem": self.problem} if self.problem else {}),
            **({"listed_as": self.listed_as} if self.listed_as else {}),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class KnownBill:
    """What is known of the bill of one cluster.

    ``notes`` are to be said, ``doubts`` are what keeps a judgement by time from being right. ``higher`` holds the
    listed prices above the ledger's, ``seconds`` the machines that are listed beside the one of their order.
    """

    entries: tuple[BillEntry, ...] = ()
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    due: t.Mapping[LeaseKey, str] = types.MappingProxyType({})
    seconds: tuple[tuple[LeaseKey, Instance], ...] = ()
    higher: t.Mapping[LeaseKey, float] = types.MappingProxyType({})

    def select(self, *standings: BillStanding) -> tuple[BillEntry, ...]:
        """Return the entries of these standings."""
        return tuple(item for item in self.entries if item.standing in standings)


def format_price(usd_per_hour: float | None) -> str:
    """Return a price for a message. One that is not known is never a number."""
    return "at an unknown price" if usd_per_hour is None else f"{usd_per_hour:.2f} USD per hour"


def describe_second(instance: Instance, ordered_at: float | None) -> str:
    """Return that a machine is listed beside the one of its order, and what it costs."""
    price = format_price(higher_price(ordered_at, instance.price_usd_per_hour))
    return f"{instance.id} is a second machine of one order ({price})"


def sum_prices(prices: t.Iterable[float | None]) -> float | None:
    """Return the sum of prices, None where one is not known."""
    known = list(prices)
    return None if None in known else round(sum(price for price in known if price is not None), 6)


def read_bill(
    index: LeaseIndex,
    sights: t.Mapping[str, Sight],
    now: float,
    runs: t.Mapping[str, RunView] | None = None,
    ending: t.Collection[Lease] = (),
) -> KnownBill:
    """Return what is known of the bill.

    :param runs: the runs by which leases may be due; without them nothing is asked.
    :param ending: the leases that are being deleted, which are told of elsewhere.
    """
    listed, seconds = _list_owned(index, sights)
    second_ids = {item.id for _key, item in seconds}
    higher = {lease.key: price for lease, price in _list_higher(index, listed)}
    priced = tuple(
        dataclasses.replace(item, price_usd_per_hour=higher.get(item.key, item.price_usd_per_hour))
        for item in index.leases
    )
    offsets = {name: sight.clock_offset_s for name, sight in sights.items()}
    due = {} if runs is None else find_due_leases(priced, runs, now, offsets)
    ending_keys = {lease.key for lease in ending}
    entries = [
        *(
            _listed_entry(item, index, due, is_second=item.id in second_ids)
            for item in _list_others(index, sights, ending)
        ),
        *(
            _unlisted_entry(lease, index, sights, due)
            for lease in index.leases
            if lease.machine
            and lease.open
            and lease.key not in ending_keys
            and lease.key not in listed
            # Its order was refused: nothing was made.
            and (lease.ids or lease.state != "failed")
        ),
    ]
    clocks = _clock_doubts(index, sights, now)
    notes = (*_price_notes(index, listed), *_name_notes(entries))
    return KnownBill(tuple(entries), notes, clocks, due, seconds, higher)


def _list_owned(
    index: LeaseIndex, sights: t.Mapping[str, Sight]
) -> tuple[dict[LeaseKey, Instance], tuple[tuple[LeaseKey, Instance], ...]]:
    """Return what is listed of each lease of a machine, and any other machine of the same order.

    Of a cluster and its pods it is the cluster.
    """
    owned: dict[LeaseKey, Instance] = {}
    seconds: list[tuple[LeaseKey, Instance]] = []
    for sight in sights.values():
        for item in sight.listing.instances if sight.listing else ():
            for lease in find_leases(item, index):
                before = owned.get(lease.key)
                if not lease.owns(item) or (before and item.resource != lease.resource):
                    continue
                if before and before.resource == item.resource and lease.open:
                    other, item = (before, item) if item.id == lease.id else (item, before)
                    seconds.append((lease.key, other))
                owned[lease.key] = item
    return owned, tuple(seconds)


def _list_higher(index: LeaseIndex, listed: t.Mapping[LeaseKey, Instance]) -> t.Iterator[tuple[Lease, float]]:
    for lease in index.leases:
        item = listed.get(lease.key)
        fits = item is not None and item.resource == lease.resource and lease.open and lease.machine
        price = item.price_usd_per_hour if item and fits else None
        if price is not None and price > (lease.price_usd_per_hour or 0.0):
            yield lease, price


def _list_others(index: LeaseIndex, sights: t.Mapping[str, Sight], ending: t.Collection[Lease]) -> t.Iterator[Instance]:
    """Yield what is listed and is not being deleted."""
    for sight in sights.values():
        for item in sight.listing.instances if sight.listing else ():
            if not any(lease.owns(item) for lease in ending):
                yield item


def _listed_entry(item: Instance, index: LeaseIndex, due: t.Mapping[LeaseKey, str], *, is_second: bool) -> BillEntry:
    leases = find_leases(item, index)
    machine = next((lease for lease in leases if lease.machine and lease.open), leases[0] if leases else None)
    standing = find_standing(item, index)
    # A device or a member of a cluster has a name of its own.
    own_name = machine.name if machine and item.resource == machine.resource else ""
    problem = "is listed again after it was proved gone: run the reap playbook" if standing == "returned" else ""
    if is_second and machine:
        problem = f"{item.id} is a second machine of one order, beside {machine.id}: rent or teardown deletes it"
    return BillEntry(
        standing,
        item.provider,
        own_name or item.name,
        item.resource,
        (item.id,),
        machine.token if machine else item.token,
        _entry_price(item, machine),
        machine.deadline if machine else None,
        due.get(machine.key, "") if machine else "",
        problem,
        item.name if own_name and not item.is_nameless and item.name != own_name else "",
    )


def _entry_price(item: Instance, lease: Lease | None) -> float | None:
    if item.resource not in ("instance", "cluster"):
        # A tailnet's devices and keys cost nothing.
        return 0.0
    of_lease = lease.price_usd_per_hour if lease and lease.resource == item.resource else None
    return higher_price(item.price_usd_per_hour, of_lease)


def _unlisted_entry(
    lease: Lease, index: LeaseIndex, sights: t.Mapping[str, Sight], due: t.Mapping[LeaseKey, str]
) -> BillEntry:
    """Return the entry of a lease that is not listed as ours: gone, hidden, or not to be seen from here at all."""
    problem = _unseen_problem(lease, index, sights.get(lease.provider))
    price = format_price(lease.usd_per_hour)
    hidden = f"{'gone' if lease.settled else 'not made (yet)'}, or hidden and billing {price}"
    return BillEntry(
        "unseen" if problem else "unlisted",
        lease.provider,
        lease.name,
        lease.resource,
        lease.ids,
        lease.token,
        lease.usd_per_hour if problem else None,
        lease.deadline,
        due.get(lease.key, ""),
        f"cannot be seen: {problem}" if problem else f"in the ledger, not listed: {hidden}",
    )


def _unseen_problem(lease: Lease, index: LeaseIndex, sight: Sight | None) -> str:
    if sight is None:
        return missing_credentials(lease.provider)
    if sight.listing is None:
        return f"{lease.provider} could not be listed"
    problem = find_account_problem(lease, sight.identity, index.leases, sight.shown)
    others = (item for item in sight.listing.instances if item.id in lease.ids)
    return problem or next((disputed_id(item.id, item.name) for item in others), "")


def _price_notes(index: LeaseIndex, listed: t.Mapping[LeaseKey, Instance]) -> tuple[str, ...]:
    """Return which machines are listed far below what they were offered at, or at no price although one is needed."""
    notes = []
    for lease in index.leases:
        item = listed.get(lease.key)
        if item is None or not (lease.open and lease.machine and item.resource == lease.resource):
            continue
        offered, price = lease.price_usd_per_hour, item.price_usd_per_hour
        if item.state == "running" and price is not None and price < _LOW_SHARE * (offered or 0.0):
            notes.append(
                f"{lease.name} is listed at {price:g} USD per hour and was ordered, or listed before, at "
                f"{format_price(offered)}: the higher price counts"
            )
        if offered is None and price is None and lease.max_cost_usd is not None:
            notes.append(f"{lease.name} has no known price, so its max_cost_usd cannot be held")
    return tuple(notes)


def _name_notes(entries: t.Iterable[BillEntry]) -> tuple[str, ...]:
    """Return which machines are listed under another name than the one that they were ordered under."""
    return tuple(f"{item.name} is listed as {item.listed_as} at {item.provider}" for item in entries if item.listed_as)


def _clock_doubts(index: LeaseIndex, sights: t.Mapping[str, Sight], now: float) -> tuple[str, ...]:
    """Return which clocks are off, and which orders are of the future."""
    offsets = {name: sight.clock_offset_s for name, sight in sights.items()}
    clocks = [describe_clock(name, offset) for name, offset in offsets.items() if offset]
    return (*clocks, *_list_future(index, offsets, now))


def _list_future(index: LeaseIndex, offsets: t.Mapping[str, float], now: float) -> t.Iterator[str]:
    """Yield which orders are of the future; ``offsets`` is how far the clocks of providers are ahead of this one."""
    for lease in index.leases:
        ahead = lease.intent_at - now - offsets.get(lease.provider, 0.0)
        if lease.open and lease.machine and ahead > CLOCK_LIMIT_S:
            until = f"its deadline {lease.deadline}" if lease.deadline else "its age"
            yield (
                f"{lease.name} was ordered at {format_whole_seconds(lease.intent_at)}, which is in the future: by a "
                f"clock that was wrong, so its cost is not known and {until} may be wrong; teardown ends it"
            )


def describe_clock(provider: str, offset_s: float) -> str:
    """Return that this clock is off by the API's dates."""
    side = "behind" if offset_s > 0 else "ahead of"
    difference = f"the clock of this machine is {abs(offset_s):.0f} s {side} that of {provider}"
    return f"{difference}, whose time is used for deadlines: set the clock"


def see(identity: AccountIdentity, listing: AccountListed, index: LeaseIndex) -> Sight:
    """Return what one listing shows; one that failed shows nothing."""
    if listing.problem:
        return Sight(identity)
    return Sight(identity, listing, list_shown(listing.instances, index))


def describe_pool(
    state: PoolState, identities: t.Mapping[str, AccountIdentity], recorded: t.Collection[Lease], now: float
) -> t.Iterator[str]:
    """Yield what each machine of a pool costs and when it ends, which are not listed, and what is odd about a price."""
    instances = [slot.lease.instance for slot in state.slots if slot.lease and slot.lease.instance]
    tokens = {slot.lease.token for slot in state.slots if slot.lease}
    leases = {lease.token: lease for lease in recorded if lease.token in tokens and lease.machine}
    index = index_leases(state.request.cluster, leases.values(), lambda _lease: False)
    sights = {
        name: see(identity, AccountListed(now, now, name, tuple(x for x in instances if x.provider == name)), index)
        for name, identity in identities.items()
    }
    bill = read_bill(index, sights, now)
    due = find_due_leases(recorded, {}, now, state.clock_offsets)
    for entry in bill.select("within_lease"):
        yield f"{entry.name}: {format_price(entry.usd_per_hour)}, {_describe_end(leases[entry.token or ''], due)}"
    for item in state.deletions:
        if item.instance.token in tokens:
            yield f"warning: {item.instance.name}: {item.reason}, and not proved gone yet"
    for entry in bill.select("unlisted"):
        yield (
            f"{entry.name}: {entry.problem}; rent replaces it where the listings of a minute lack it and "
            f"{entry.provider} does not know its id"
        )
    yield from (f"warning: {line}" for line in (*_list_future(index, state.clock_offsets, now), *bill.notes))


def _describe_end(lease: Lease, due: t.Mapping[LeaseKey, str]) -> str:
    """Return why a lease is due now, or when it will be."""
    if lease.key in due:
        return f"due now, as {due[lease.key]}: reap terminates it"
    ends = [f"at {lease.deadline}"] if lease.deadline else []
    if lease.max_cost_usd is not None:
        ends.append(f"once its {'run' if lease.run_id else 'pool'} has cost {lease.max_cost_usd:.2f} USD")
    return f"due {', or '.join(ends)}" if ends else "no deadline: it bills until teardown"


def use_server_time(request: PoolRequest, listed: t.Mapping[str, AccountListed]) -> tuple[PoolRequest, tuple[str, ...]]:
    """Return the request with its deadline by the clock of an API where this one is wrong, and a line that says so."""
    for name, item in sorted(listed.items()):
        offset = find_clock_offset(item)
        if offset:
            deadline = request.deadline and format_time(parse_time(request.deadline) + offset)
            return dataclasses.replace(request, deadline=deadline), (f"warning: {describe_clock(name, offset)}",)
    return request, ()
