# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines were used for and cost, from the ledger of leases and the records of runs."""

from __future__ import annotations

import typing as t

from ...module_utils._model.account import useful_share_of_machines
from ...module_utils._model.errors import InputError
from ...module_utils._model.ledger import Lease, LedgerEvent
from ...module_utils._model.run_record import RunRecord
from ...module_utils._model.timestamps import format_whole_seconds, parse_time
from ...module_utils._model.usage import KEYS, Key, NodeUse, RentedTime, UsageRow, build_usage, sum_rows
from .._provision.ledger.ledger_store import read_ledger
from .shared.state_dir import StateHome, load_record

_FIGURES = ("gpu_hours", "idle_gpu_hours", "node_hours", "usd")
_TITLES = {
    "gpu_hours": "GPU-hours",
    "idle_gpu_hours": "idle GPU-hours",
    "usd": "USD",
    "useful_node_hours": "useful",
}
_UNKNOWN = "-"
_IDLE = "(idle)"


def read_usage(
    home: StateHome, by: t.Sequence[str], since: str | None, before: str | None, now: float
) -> dict[str, object]:
    """Return ``{rows, total, ledger_usd, warnings, table}`` of what was used between two times.

    :param by: what rows are told apart by.
    :param since: and ``before``, timestamps or dates, None for all that is known.
    :raises InputError: for a key that is none, and for a time that cannot be read.
    """
    keys = _parse_keys(by)
    begin, end = _parse_limit(since, "since", 0.0), _parse_limit(before, "before", now)
    if begin >= end:
        raise InputError("since", f"is not earlier than {'before' if before else 'now'}", "Give an earlier time")
    content = read_ledger(home.folder)
    records = [record for record in map(load_record, home.runs()) if record is not None]
    uses = [use for record in records for use in _list_uses(record, now)]
    gpus = _count_gpus(records)
    leases = [lease for lease in content.leases.values() if lease.machine and not lease.never_made]
    rented = [_rented_time(lease, gpus, now) for lease in leases]
    rented += [time for lease in leases for time in _second_times(lease, gpus, now)]
    rows = build_usage(rented, uses, keys, begin, min(end, now))
    clipped = [(max(begin, time.since), min(end, time.until), time.usd_per_hour) for time in rented]
    costs = [(price or 0.0) * max(0.0, last - first) / 3600 for first, last, price in clipped]
    total = sum_rows(rows)
    return {
        "changed": False,
        "rows": [row.to_dict() for row in rows],
        "total": total.to_dict(),
        "ledger_usd": round(sum(costs), 4),
        "warnings": list(content.warnings),
        "table": _build_table(rows, total, keys, list(_list_doubts(leases, content.events, now))),
    }


def _parse_keys(by: t.Sequence[str]) -> list[Key]:
    unknown = [name for name in by if name not in KEYS]
    if unknown or not by:
        raise InputError("by", f"has no {unknown[0]}" if unknown else "is empty", f"Choose of {', '.join(KEYS)}")
    return [name for name in KEYS if name in by]


def _parse_limit(value: str | None, name: str, default: float) -> float:
    """Return Unix seconds; a date alone is its beginning (UTC)."""
    if value is None:
        return default
    return parse_time(f"{value}T00:00:00Z" if len(value) == len("2026-11-28") else value, name)


def _rented_time(lease: Lease, gpus: t.Mapping[str, int], now: float) -> RentedTime:
    # A provider may bill from the order on, and until the deletion was seen to be true.
    until = now if lease.open else lease.changed_at
    # Whether an order without an answer has made a machine is not known.
    price = lease.price_usd_per_hour if lease.ids else None
    return RentedTime(lease.name, lease.token, lease.intent_at, until, price, gpus.get(lease.token), *_origin_of(lease))


def _second_times(lease: Lease, gpus: t.Mapping[str, int], now: float) -> t.Iterator[RentedTime]:
    """Yield the times of other machines that a lease's order has led to: no run holds one."""
    last = now if lease.open else lease.changed_at
    for item, (price, until) in zip(lease.seconds, lease.list_seconds(last), strict=True):
        name, key = f"{lease.name} (second machine {item.id})", f"{lease.token} {item.id}"
        yield RentedTime(name, key, lease.intent_at, until, price, gpus.get(lease.token), *_origin_of(lease))


def _origin_of(lease: Lease) -> tuple[str, str | None]:
    """Return the provider of a machine and the model of its GPUs."""
    return lease.provider, lease.ordered.gpu_model if lease.ordered else None


def _list_doubts(leases: t.Iterable[Lease], events: t.Iterable[LedgerEvent], now: float) -> t.Iterator[str]:
    """Yield which machines have cost more than any figure says: found without an order, or ordered by a wrong clock."""
    found = {event.token for event in events if event.event == "orphan"}
    for lease in leases:
        if lease.token in found:
            at = format_whole_seconds(lease.intent_at)
            yield f"what {lease.name} cost before {at}, when it was found without an order in the ledger"
        elif lease.open and lease.intent_at > now:
            at = format_whole_seconds(lease.intent_at)
            yield f"what {lease.name} costs, which was ordered at {at}: in the future by this machine's clock, set it"


def _count_gpus(records: t.Iterable[RunRecord]) -> dict[str, int]:
    """Return the GPUs of rented machines by token, as runs have seen them."""
    found: dict[str, int] = {}
    for record in records:
        for attempt in record.attempts:
            for node in attempt.nodes:
                seen = ((record.devices or {}).get(node.id) or {}).get("gpus")
                if node.token and isinstance(seen, int):
                    found[node.token] = max(seen, found.get(node.token, 0))
    return found


def _list_uses(record: RunRecord, now: float) -> t.Iterator[NodeUse]:
    """Yield when a run held each machine, as its cost is counted.

    Of a record of an earlier version it is the time of its attempts; where an end is not known, it is that of the run.
    """
    asked = record.job.get("gpus_per_node") or 0
    team = record.backend_ref.namespace if record.backend_ref else None
    useful = useful_share_of_machines(record.account.seconds) if record.account else None
    former = [(node, attempt.ended_at) for attempt in record.attempts for node in attempt.nodes]
    for node, ended_at in [(node, None) for node in record.held] or former:
        until = node.until or ended_at or record.ended_at
        if node.since is None:
            continue
        yield NodeUse(
            node=node.id,
            token=node.token,
            since=parse_time(node.since),
            until=parse_time(until) if until else now,
            run=record.run_id,
            job=str(record.job.get("name") or record.run_id),
            user=record.submitted_by,
            team=team,
            gpus=asked if isinstance(asked, int) else None,
            usd_per_hour=node.price_usd_per_hour,
            useful=useful,
        )


def _build_table(
    rows: t.Sequence[UsageRow], total: UsageRow, keys: t.Sequence[Key], doubts: t.Sequence[str]
) -> list[str]:
    unknown = [f"not known, and in no figure: {line}" for line in doubts]
    if not rows:
        return unknown or ["nothing was used or rented in that time"]
    cells = [[*keys, "GPU-hours", "idle GPU-hours", "node-hours", "USD", "useful"]]
    for row in rows:
        names = [row.keys.get(key) or (_IDLE if key == "job" else _UNKNOWN) for key in keys]
        cells.append([*names, *_format_figures(row)])
    cells.append([*(["total", *[""] * (len(keys) - 1)]), *_format_figures(total)])
    widths = [max(len(line[index]) for line in cells) for index in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    if total.shared_node_hours:
        unknown.insert(
            0,
            f"{total.shared_node_hours:.2f} node-hours were held by several runs at once, and are shared out to them "
            "here with their dollars; status and report have all of a run's own",
        )
    missing = [f"{_TITLES[name]} of {hours:.1f} node-hours" for name, hours in sorted(total.unknown.items())]
    return [*lines, *([f"not known, and in no figure (+): {', '.join(missing)}"] if missing else []), *unknown]


def _format_figures(row: UsageRow) -> list[str]:
    figures = [f"{getattr(row, name):.2f}{'+' if name in row.unknown else ''}" for name in _FIGURES]
    return [*figures, _UNKNOWN if row.useful is None else f"{100 * row.useful:.0f} %"]
