# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines were used for, and what that cost: GPU-hours and dollars of runs, and of the time without one.

Pure rules on the time for which machines were rented, by the ledger, and the time for which runs held them, by their
records. The dollars of a rented machine are the ledger's, shared out over its time: their sum is the ledger's sum.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import typing as t

Key = t.Literal["month", "user", "team", "job", "run", "node", "provider", "gpu"]
KEYS: t.Final[tuple[Key, ...]] = t.get_args(Key)
Figure = t.Literal["gpu_hours", "idle_gpu_hours", "useful_node_hours", "usd"]
# The sums of a row in their order.
SUMS: t.Final = ("gpu_hours", "idle_gpu_hours", "node_hours", "useful_node_hours", "shared_node_hours", "usd")


@dataclasses.dataclass(frozen=True, slots=True)
class RentedTime:
    """From when until when a machine cost money, in Unix seconds. ``gpus`` is None where nothing says it.

    ``gpu`` is the model that was ordered.
    """

    node: str
    token: str
    since: float
    until: float
    usd_per_hour: float | None
    gpus: int | None = None
    provider: str | None = None
    gpu: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NodeUse:
    """From when until when a run held a machine. ``token`` is that of its lease, None for a machine of one's own.

    ``gpus`` is what the run asked of it; ``usd_per_hour`` is what its inventory says it costs. ``useful`` is the share
    of the run's time on machines that went to steps which count, by its account.
    """

    node: str
    token: str | None
    since: float
    until: float
    run: str
    job: str
    user: str | None = None
    team: str | None = None
    gpus: int | None = None
    usd_per_hour: float | None = None
    useful: float | None = None


@dataclasses.dataclass
class UsageRow:
    """Sums over what is equal in ``keys``: ``job`` is None where no run held the machine.

    :ivar gpu_hours: of GPUs that runs held.
    :ivar idle_gpu_hours: of GPUs that were rented and not held.
    :ivar node_hours: of machines, held by runs or, in rows without a job, rented.
    :ivar useful_node_hours: of machines of runs, that went to steps which count.
    :ivar shared_node_hours: of machines that several runs held at once: each has its part here, and all of it in its
        own record.
    :ivar usd: their costs.
    :ivar unknown: node-hours of which a figure is not known, by its name; they are not in that figure.
    """

    keys: dict[Key, str | None]
    gpu_hours: float = 0.0
    idle_gpu_hours: float = 0.0
    node_hours: float = 0.0
    useful_node_hours: float = 0.0
    shared_node_hours: float = 0.0
    usd: float = 0.0
    unknown: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, name: Figure, per_hour: float | None, hours: float) -> None:
        """Add a figure for some hours of a machine."""
        if per_hour is None:
            self.unknown[name] = self.unknown.get(name, 0.0) + hours
        else:
            setattr(self, name, getattr(self, name) + per_hour * hours)

    @property
    def useful(self) -> float | None:
        """The share of the machines' time that went to steps which count, of what is known; None where nothing is."""
        known = self.node_hours - self.unknown.get("useful_node_hours", 0.0)
        return self.useful_node_hours / known if known > 1e-9 else None

    def to_dict(self) -> dict[str, object]:
        """Return the row as JSON types, hours to the second and dollars to a hundredth of a cent."""
        figures = {name: round(getattr(self, name), 4) for name in SUMS}
        keys: dict[str, object] = dict(self.keys.items())
        return {**keys, **figures, "unknown": {name: round(hours, 4) for name, hours in self.unknown.items()}}


def build_usage(
    rented: t.Iterable[RentedTime], used: t.Iterable[NodeUse], by: t.Collection[Key], since: float, until: float
) -> list[UsageRow]:
    """Return what was used between two times, one row for each combination of ``by``, ordered by it."""
    rows: dict[tuple[str | None, ...], UsageRow] = {}
    uses: dict[str, list[NodeUse]] = collections.defaultdict(list)
    for use in used:
        uses[use.token or f"own {use.node}"].append(use)
    for time in rented:
        machine = uses.pop(time.token, [])
        _share_out(rows, by, time, machine, max(since, time.since), min(until, time.until))
    for own in uses.values():
        _share_out(rows, by, None, own, since, until)
    return sorted(rows.values(), key=lambda row: [(value is None, value or "") for value in row.keys.values()])


def _share_out(
    rows: dict[tuple[str | None, ...], UsageRow],
    by: t.Collection[Key],
    rented: RentedTime | None,
    uses: t.Sequence[NodeUse],
    since: float,
    until: float,
) -> None:
    """Add one machine to the rows, piece by piece of its time in which the same runs held it."""
    if not rented:
        since, until = max(since, min(use.since for use in uses)), min(until, max(use.until for use in uses))
    if since >= until:
        return
    inner = [at for use in uses for at in (use.since, use.until) if since < at < until]
    bounds = {since, until, *inner, *_month_starts(since, until)}
    for begin, end in itertools.pairwise(sorted(bounds)):
        hours = (end - begin) / 3600
        held = [use for use in uses if use.since <= begin and use.until >= end]
        for use in held:
            row = _row_of(rows, by, begin, rented, use)
            row.node_hours += hours / len(held)
            row.shared_node_hours += hours / len(held) if len({item.run for item in held}) > 1 else 0.0
            row.add("useful_node_hours", use.useful, hours / len(held))
            row.add("gpu_hours", use.gpus, hours)
            price = rented.usd_per_hour if rented else use.usd_per_hour
            row.add("usd", price, hours / len(held))
        if rented:
            _add_idle(rows, by, rented, held, begin, hours)


def _add_idle(
    rows: dict[tuple[str | None, ...], UsageRow],
    by: t.Collection[Key],
    rented: RentedTime,
    held: t.Sequence[NodeUse],
    at: float,
    hours: float,
) -> None:
    """Add what of a rented machine no run held for some hours: GPUs, or all of it."""
    taken = [use.gpus for use in held]
    is_known = rented.gpus is not None and None not in taken
    idle = max(0, (rented.gpus or 0) - sum(gpus or 0 for gpus in taken)) if is_known else None
    if held and idle == 0:
        return
    row = _row_of(rows, by, at, rented, None)
    row.add("idle_gpu_hours", idle, hours)
    if not held:
        row.node_hours += hours
        row.add("usd", rented.usd_per_hour, hours)


def _row_of(
    rows: dict[tuple[str | None, ...], UsageRow],
    by: t.Collection[Key],
    at: float,
    rented: RentedTime | None,
    use: NodeUse | None,
) -> UsageRow:
    month = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m")
    values: dict[Key, str | None] = {"month": month}
    if rented is not None:
        values |= {"node": rented.node, "provider": rented.provider, "gpu": rented.gpu}
    if use is not None:
        values |= {"user": use.user, "team": use.team, "job": use.job, "run": use.run, "node": use.node}
    keys: dict[Key, str | None] = {name: values.get(name) for name in KEYS if name in by}
    return rows.setdefault(tuple(keys.values()), UsageRow(keys))


def _month_starts(since: float, until: float) -> t.Iterator[float]:
    """Yield when the months (UTC) begin that do so between two times."""
    first = datetime.datetime.fromtimestamp(since, datetime.timezone.utc)
    year, month = first.year, first.month
    while True:
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        at = datetime.datetime(year, month, 1, tzinfo=datetime.timezone.utc).timestamp()
        if at >= until:
            return
        yield at


def sum_rows(rows: t.Iterable[UsageRow]) -> UsageRow:
    """Return the sum of all rows."""
    total = UsageRow({})
    for row in rows:
        for name in SUMS:
            setattr(total, name, getattr(total, name) + getattr(row, name))
        for name, hours in row.unknown.items():
            total.unknown[name] = total.unknown.get(name, 0.0) + hours
    return total
