# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease ledger as values: one event a line, and the leases that a list of events adds up to.

The rule: an ``intent`` is on disk before the create call is sent, so every machine at a provider under a token of the
collection has a line in the ledger, whenever the controller stopped.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from . import validators as f
from .errors import InputError
from .lease import Instance, Resource
from .offer import Hardware
from .timestamps import format_time, parse_time

EventKind = t.Literal[
    "intent", "created", "adopted", "joined", "draining", "lost", "deleted", "verified", "orphan", "failed"
]
EVENTS: tuple[str, ...] = t.get_args(EventKind)
RESOURCES: tuple[str, ...] = t.get_args(Resource)
RELEASES = ("success", "always", "never")
_TOKEN = re.compile(r"[0-9a-f]{8}\Z")
# The reason of a delete that found nothing.
UNKNOWN_ID = "the provider does not know the id"
# Events with an id that a listing showed under the lease's token.
_SEEN = ("adopted", "joined")


def _parse_token(value: t.Any, path: str) -> str:
    text = f.text(value, path)
    if not _TOKEN.match(text):
        raise InputError(path, "must be 8 hexadecimal digits")
    return text


def _parse_time(value: t.Any, path: str) -> str:
    parse_time(value, path)
    return str(value)


def _parse_evidence(value: t.Any, path: str) -> t.Mapping[str, t.Any]:
    evidence = f.dictionary(value, path)
    if "until" in evidence:
        parse_time(evidence["until"], f"{path}.until")
    if "not_ours" in evidence:
        f.list_of(f.text)(evidence["not_ours"], f"{path}.not_ours")
    return evidence


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One line of ``ledger.jsonl``; ``schema`` is added when it is written.

    ``fingerprint`` is that of the credential which made or saw the resource, whatever the user calls the account, and
    ``api`` the address of the API.
    """

    at: str = f.field(_parse_time)
    cluster: str = f.field(f.text)
    token: str = f.field(_parse_token)
    event: EventKind = f.field(f.choice(*EVENTS))
    resource: Resource = f.field(f.choice(*RESOURCES))
    provider: str = f.field(f.text)
    account: str = f.field(f.text)
    pool: str = f.field(f.text)
    name: str = f.field(f.text)
    region: str | None = f.field(f.text, None)
    id: str | None = f.field(f.text, None)
    run_id: str | None = f.field(f.text, None)
    price_usd_per_hour: float | None = f.field(f.decimal(0), None)
    deadline: str | None = f.field(_parse_time, None)
    release: str | None = f.field(f.choice(*RELEASES), None)
    max_cost_usd: float | None = f.field(f.decimal(0), None)
    settled: bool | None = f.field(f.boolean, None)
    reason: str | None = f.field(f.text, None)
    evidence: t.Mapping[str, t.Any] | None = f.field(_parse_evidence, None)
    fingerprint: str | None = f.field(f.text, None)
    api: str | None = f.field(f.text, None)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the JSON form; unknown values are left out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"schema": 1, **{key: value for key, value in values.items() if value is not None}}

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "ledger") -> LedgerEvent:
        """Read one event; unknown keys are ignored, so that a newer writer's line still counts.

        Raises InputError for another schema, or for a known key that is missing or wrong.
        """
        record = f.dictionary(value, path)
        if record.get("schema") != 1:
            raise InputError(f"{path}.schema", "is not 1", "Use the version of the collection that wrote the ledger")
        names = {field.name for field in dataclasses.fields(cls)}
        return f.section(cls)({key: value for key, value in record.items() if key in names}, path)

    def line(self) -> str:
        """Return the event as one line of JSON with its newline."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")) + "\n"


@dataclasses.dataclass(frozen=True, slots=True)
class SecondMachine:
    """Another machine that was listed under a lease's token: it bills from the order on, ``until`` its delete.

    Its price is the lease's where ``usd_per_hour`` is None: both are of one order.
    """

    id: str
    usd_per_hour: float | None = None
    until: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """One rented resource: the sum of the events of one (token, resource).

    ``state`` is the last event. ``id`` is the last id that the provider reported.
    ``settled`` is false while a create call may still take effect (an intent without a response).
    ``intent_at`` and ``changed_at`` are Unix times of the first and the last event, ``run_at`` that of the first event
    of the run that uses the lease now. ``run_place`` is where that run is stored on its machines
    (``{nodes: [{id, run_dir, decides}]}``), or in its cluster (``{cluster: {api_version, kind, name, namespace,
    uid, cluster_id}}``).
    ``until`` is when the process that ordered it will have stopped waiting for it.
    ``fingerprints`` are those of the credentials that made or saw it, ``apis`` the addresses at which, ``seen_ids`` the
    ids under which listings showed it by its token; ``was_taken`` means that its provider accepted a delete of it.
    ``price_usd_per_hour`` is the highest that was offered or listed. ``seconds`` are other machines that its order has
    led to, ``ordered`` is what it was for, where the ledger has it.
    """

    token: str
    resource: Resource
    cluster: str
    pool: str
    name: str
    provider: str
    account: str
    state: EventKind
    settled: bool
    intent_at: float
    changed_at: float
    created_at: float | None = None
    ids: tuple[str, ...] = ()
    region: str | None = None
    run_id: str | None = None
    price_usd_per_hour: float | None = None
    deadline: str | None = None
    release: str | None = None
    max_cost_usd: float | None = None
    run_at: float | None = None
    run_place: t.Mapping[str, t.Any] | None = None
    until: float | None = None
    fingerprints: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()
    seen_ids: tuple[str, ...] = ()
    was_taken: bool = False
    seconds: tuple[SecondMachine, ...] = ()
    ordered: Hardware | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return what tells it from other leases: its token and its resource."""
        return (self.token, self.resource)

    @property
    def id(self) -> str | None:
        """Return the provider's id, None while no response and no listing had it."""
        return self.ids[-1] if self.ids else None

    @property
    def machine(self) -> bool:
        """Return whether it is for a machine, or for a cluster that the provider sells as one."""
        return self.resource in ("instance", "cluster")

    @property
    def open(self) -> bool:
        """Return whether the deletion of the resource still has to be verified."""
        return self.state != "verified"

    @property
    def never_made(self) -> bool:
        """Return whether its order was refused or never took effect, so that it costs nothing."""
        return self.settled and not self.ids

    def owns(self, instance: Instance) -> bool:
        """Return whether a listed instance is this lease's: by its token, or by an id where no other name is shown.

        The id must be one that a listing showed under the token before: an answer may have held a wrong one.
        """
        if instance.provider != self.provider or not instance.resource_fits(self.resource):
            return False
        return instance.carries(self.cluster, self.token) or (instance.is_nameless and instance.id in self.seen_ids)

    def cost_usd(self, now: float) -> float | None:
        """Return dollars since the create call (a provider may bill from there), None without a price.

        A lease that a run took over later costs that run from then on. A second machine of its order costs as well.
        """
        since = self.intent_at if self.run_at is None else self.run_at
        times = [(self.price_usd_per_hour, now), *self.list_seconds(now)]
        if any(price is None for price, _until in times):
            return None
        return sum((price or 0.0) * max(0.0, until - since) / 3600 for price, until in times)

    @property
    def usd_per_hour(self) -> float | None:
        """Return what it costs now, with other machines of its order that were not deleted; None without a price."""
        prices = [self.price_usd_per_hour, *(item.usd_per_hour for item in self.seconds if item.until is None)]
        known = [self.price_usd_per_hour if price is None else price for price in prices]
        return None if None in known else sum(price or 0.0 for price in known)

    def list_seconds(self, now: float) -> list[tuple[float | None, float]]:
        """Return the price and the end, ``now`` without one, of each second machine."""
        return [
            (
                self.price_usd_per_hour if item.usd_per_hour is None else item.usd_per_hour,
                now if item.until is None else item.until,
            )
            for item in self.seconds
        ]


def higher_price(*prices: float | None) -> float | None:
    """Return what counts of an offer's price and those that were listed: the highest one that is known."""
    return max((price for price in prices if price is not None), default=None)


def make_event(lease: Lease, event: EventKind, at: float, **values: t.Any) -> LedgerEvent:
    """Return what happened to a lease at a time (Unix seconds); ``values`` are fields that differ from the lease's."""
    own = ("cluster", "token", "resource", "provider", "account", "pool", "name", "region", "id", "run_id")
    known = {name: getattr(lease, name) for name in (*own, "price_usd_per_hour")}
    return LedgerEvent(at=format_time(at), event=event, **{**known, **values})


def _first_lease(event: LedgerEvent) -> Lease:
    at = parse_time(event.at)
    return Lease(
        token=event.token,
        resource=event.resource,
        cluster=event.cluster,
        pool=event.pool,
        name=event.name,
        provider=event.provider,
        account=event.account,
        state=event.event,
        settled=event.event != "intent",
        intent_at=at,
        changed_at=at,
        run_at=at if event.run_id else None,
        run_id=event.run_id,
    )


def _apply_second(lease: Lease, event: LedgerEvent) -> Lease:
    """Return a lease after what happened to a second machine of its order: it is found, or deleted."""
    known = {item.id: item for item in lease.seconds}
    before = known.get(event.id or "", SecondMachine(event.id or ""))
    price = higher_price(before.usd_per_hour, event.price_usd_per_hour)
    known[before.id] = SecondMachine(before.id, price, parse_time(event.at) if event.event == "deleted" else None)
    # Its own id stays the last one.
    others = tuple(item for item in lease.ids if item != before.id)
    seen = _add(lease.seen_ids, before.id)
    return dataclasses.replace(lease, seconds=tuple(known.values()), ids=(before.id, *others), seen_ids=seen)


def _apply_event(lease: Lease, event: LedgerEvent) -> Lease:
    if (event.evidence or {}).get("second"):
        return _apply_second(lease, event)
    at = parse_time(event.at)
    settled = event.settled if event.settled is not None else event.event != "intent"
    ids = lease.ids if event.id is None or event.id in lease.ids else (*lease.ids, event.id)
    strangers = (event.evidence or {}).get("not_ours") or ()
    updated = ("region", "run_id", "deadline", "release", "max_cost_usd")
    changes: dict[str, t.Any] = {key: getattr(event, key) for key in updated if getattr(event, key) is not None}
    created = at if event.event == "created" and lease.created_at is None else lease.created_at
    changes |= _run_changes(lease, event)
    changes["price_usd_per_hour"] = higher_price(lease.price_usd_per_hour, event.price_usd_per_hour)
    changes["fingerprints"] = _add(lease.fingerprints, event.fingerprint)
    changes["was_taken"] = lease.was_taken or (event.event == "deleted" and event.reason != UNKNOWN_ID)
    changes["apis"] = _add(lease.apis, event.api)
    changes["seen_ids"] = _add(lease.seen_ids, event.id if event.event in _SEEN else None)
    if event.evidence and "until" in event.evidence:
        changes["until"] = parse_time(event.evidence["until"])
    if event.event in ("deleted", "verified"):
        changes["seconds"] = tuple(
            dataclasses.replace(item, until=at)
            if item.until is None and (event.event == "verified" or item.id == event.id)
            else item
            for item in lease.seconds
        )
    if event.evidence and isinstance(event.evidence.get("ordered"), t.Mapping):
        changes["ordered"] = Hardware.of_values(event.evidence["ordered"])
    ids = tuple(item for item in ids if item not in strangers)
    changes["seen_ids"] = tuple(item for item in changes["seen_ids"] if item not in strangers)
    return dataclasses.replace(
        lease, state=event.event, settled=settled, ids=ids, changed_at=at, created_at=created, **changes
    )


def _add(known: tuple[str, ...], value: str | None) -> tuple[str, ...]:
    return known if not value or value in known else (*known, value)


def _run_changes(lease: Lease, event: LedgerEvent) -> dict[str, t.Any]:
    """Return the fields that change when an event names a run: another run brings its own release rules, or none."""
    place = (event.evidence or {}).get("run_place")
    changes: dict[str, t.Any] = {"run_place": place} if isinstance(place, t.Mapping) else {}
    if event.run_id is None or event.run_id == lease.run_id:
        return changes
    changes = {"run_place": None, **changes, "run_at": parse_time(event.at)}
    if lease.run_id is not None:
        changes |= {"release": event.release, "max_cost_usd": event.max_cost_usd}
    return changes


def fold_events(events: t.Iterable[LedgerEvent]) -> dict[tuple[str, str], Lease]:
    """Return the lease of every (token, resource) in the order of their first lines."""
    leases: dict[tuple[str, str], Lease] = {}
    for event in events:
        key = (event.token, event.resource)
        leases[key] = _apply_event(leases.get(key) or _first_lease(event), event)
    return leases
