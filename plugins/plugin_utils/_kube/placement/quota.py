# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the quota of a queue or a namespace has room for a gang, by what their objects say. Nothing is submitted.

Kueue alone admits a job; what it counts is in the objects (``ClusterQueue.status.flavorsReservation``, of its API
v1beta2; ``ResourceQuota.status.used``), so that a check can say what it would decide now.
"""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from ....module_utils._model.quantity import parse_quantity
from ..api.kinds import KubeObject

Amounts = t.Mapping[str, Decimal]
# The scopes under which a ResourceQuota counts the pods of a gang: they have requests, and no time limit of their own.
_SCOPES: t.Final = frozenset(("NotTerminating", "NotBestEffort"))


@dataclasses.dataclass(frozen=True, slots=True)
class Quota:
    """One limit that a gang counts against.

    ``shares``: by resource (how much there is, how much of it is taken) of each flavor, of which a gang gets one.
    ``is_counted``: what is taken is known. ``borrows``: more may be borrowed from this cohort. ``covers_all``: what it
    has no quota for is refused. ``waiting``: how many jobs wait for it already.
    """

    title: str
    shares: t.Mapping[str, t.Sequence[tuple[Decimal, Decimal]]]
    is_counted: bool = True
    borrows: str = ""
    covers_all: bool = False
    waiting: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaShortage:
    """What a quota lacks for a gang. ``never``: also with nothing else in it, so that no waiting helps."""

    text: str
    never: bool


def sum_requests(pods: int, requests: t.Mapping[str, str], ranges: t.Sequence[KubeObject] = ()) -> dict[str, Decimal]:
    """Return what ``pods`` alike ask for by resource: their requests, and what the LimitRanges add to them."""
    added: dict[str, str] = {}
    for item in ranges:
        for rule in (item.get("spec") or {}).get("limits") or ():
            if rule.get("type") == "Container":
                added |= {name: str(value) for name, value in (rule.get("defaultRequest") or {}).items()}
    each = {name: parse_quantity(str(value)) for name, value in {**added, **requests}.items()}
    return {name: value * pods for name, value in each.items() if value}


def parse_cluster_queue(item: KubeObject) -> Quota:
    """Return the quota of a ClusterQueue.

    :raises ValueError: for a quantity that is none.
    """
    spec, status = item.get("spec") or {}, item.get("status") or {}
    reserved = {
        (flavor["name"], row["name"]): _parse(row.get("total"))
        for flavor in status.get("flavorsReservation") or ()
        for row in flavor.get("resources") or ()
    }
    shares: dict[str, list[tuple[Decimal, Decimal]]] = {}
    cohort, lends = str(spec.get("cohortName") or ""), False
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for row in flavor.get("resources") or ():
                taken = reserved.get((flavor["name"], row["name"]), Decimal(0))
                lends = lends or (bool(cohort) and str(row.get("borrowingLimit")) != "0")
                shares.setdefault(row["name"], []).append((_parse(row.get("nominalQuota")), taken))
    return Quota(
        f"ClusterQueue {item['metadata']['name']}",
        shares,
        is_counted="flavorsReservation" in status,
        borrows=cohort if lends else "",
        covers_all=True,
        waiting=int(status.get("pendingWorkloads") or 0),
    )


def parse_resource_quota(item: KubeObject) -> Quota | None:
    """Return what a ResourceQuota allows of what pods request, None where it does not count the pods of a gang.

    :raises ValueError: for a quantity that is none.
    """
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if spec.get("scopeSelector") or not {*(spec.get("scopes") or ())} <= _SCOPES:
        return None
    hard = {name: _parse(value) for name, value in (spec.get("hard") or {}).items()}
    wanted = {name: key for key in hard if (name := _read_limited(key))}
    used = {key: _parse(value) for key, value in (status.get("used") or {}).items()}
    if not wanted:
        return None
    return Quota(
        f"ResourceQuota {item['metadata']['name']}",
        {name: [(hard[key], used.get(key, Decimal(0)))] for name, key in wanted.items()},
        is_counted=bool(used),
    )


def _read_limited(key: str) -> str:
    """Return the resource of a pod's requests that an entry of a ResourceQuota limits, empty for other entries."""
    if key.startswith("requests."):
        name = key.removeprefix("requests.")
        # Of claims, not of pods.
        return "" if name == "storage" else name
    return key if key in ("cpu", "memory", "pods") else ""


def _parse(value: object) -> Decimal:
    number = parse_quantity(str(value if value is not None else 0))
    if number is None:
        raise ValueError(f"{value!r} is not a quantity")
    return number


def find_shortage(quota: Quota, asked: Amounts, pods: int) -> QuotaShortage | None:
    """Return what a quota lacks for a gang, None where it has room.

    :param asked: what the whole gang requests by resource; :param pods: how many pods it has.
    """
    wanted = {**asked, "pods": Decimal(pods)}
    lacking = sorted(name for name in asked if quota.covers_all and name not in quota.shares)
    if lacking:
        return QuotaShortage(f"{quota.title} has no quota for {', '.join(lacking)}", never=True)
    over, full = [], []
    for name, shares in sorted(quota.shares.items()):
        amount = wanted.get(name, Decimal(0))
        if not amount:
            continue
        if amount > max(most for most, _taken in shares):
            over.append(_describe(quota, name, amount, max(shares)))
        elif amount > max(most - taken for most, taken in shares):
            full.append(_describe(quota, name, amount, max(shares, key=lambda share: share[0] - share[1])))
    if over and not quota.borrows:
        return QuotaShortage("; ".join(over), never=True)
    return QuotaShortage("; ".join([*over, *full]), never=False) if over or full else None


def _describe(quota: Quota, name: str, wanted: Decimal, share: tuple[Decimal, Decimal]) -> str:
    most, taken = share
    left = "how much of it is in use is not known"
    if quota.is_counted:
        left = f"{format_amount(name, taken)} in use, {format_amount(name, max(Decimal(0), most - taken))} left"
    title = "CPU" if name == "cpu" else name
    return f"{format_amount(name, wanted)} {title} asked, {quota.title} has {format_amount(name, most)} ({left})"


def format_amount(name: str, amount: Decimal) -> str:
    """Return an amount of a resource for people: memory in GiB, everything else as a number."""
    if name.endswith(("memory", "storage")) and amount >= 2**20:
        unit, factor = ("GiB", 2**30) if amount >= 2**30 else ("MiB", 2**20)
        return f"{float(amount) / factor:.4g} {unit}"
    return f"{float(amount):.10g}"
