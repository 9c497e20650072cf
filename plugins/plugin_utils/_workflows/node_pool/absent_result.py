# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of ``node_pool`` with state absent, in check mode too: its values, its summary and its message."""

from __future__ import annotations

import typing as t

from ....module_utils._model.lease import TeardownProof
from ..._provision.bill.known_bill import BillEntry, format_price, sum_prices
from .accounts import ModuleResult


def build_result(
    proof: TeardownProof,
    changed: bool,
    warnings: t.Sequence[str],
    problems: t.Sequence[str] = (),
    would_end: t.Sequence[BillEntry] | None = None,
) -> ModuleResult:
    """Return the result; ``would_end`` is what check mode found to end, None where it was ended."""
    names = sorted(lease.token for lease in proof.leases) + sorted(item.name for item in would_end or ())
    result: ModuleResult = {
        **{key: value for key, value in proof.to_dict().items() if key != "schema"},
        "changed": changed,
        "clean": proof.clean and not problems,
        "within_lease_usd_per_hour": sum_prices(item.get("usd_per_hour") for item in proof.within_lease),
        "ledger_warnings": list(warnings),
        "summary": summarise(proof, would_end),
        "diff": {"before": {"leases": names}, "after": {"leases": []}},
    }
    if would_end is not None:
        result["would_end"] = [{**item.to_dict(), "reason": item.reason} for item in would_end]
        result["would_end_usd_per_hour"] = sum_prices(item.usd_per_hour for item in would_end)
    remaining = [*proof.describe_remaining(), *problems]
    if remaining:
        msg = f"{_describe_failure(proof, would_end)}: {'; '.join(remaining)}"
        result |= {"failed": True, "msg": msg if would_end is None else f"{result['summary']} {msg}"}
    return result


def _describe_failure(proof: TeardownProof, would_end: t.Sequence[BillEntry] | None) -> str:
    if proof.clean:
        return "everything that was to be deleted is, but" if would_end is None else "nothing else bills, but"
    cost = f"it may cost {_plain(proof.residual_usd_per_hour)}"
    if would_end is not None:
        return f"not everything would be deleted ({cost})"
    return f"not everything is deleted, or proved to be ({cost})"


def summarise(proof: TeardownProof, would_end: t.Sequence[BillEntry] | None = None) -> str:
    """Return the proof in one line; a sum with a part that is not known is not known."""
    within = sum_prices(item.get("usd_per_hour") for item in proof.within_lease)
    hidden = [f"{item['name']}: {item['problem']}" for item in proof.within_lease if item.get("problem")]
    # What would end bills until it does: in check mode these are the sums of what would be left.
    left = "" if would_end is None else "leaving "
    parts = [
        *(_list_would_end(would_end) if would_end is not None else list_proved(proof)),
        f"{left}{len(proof.within_lease)} within their lease ({'; '.join([_plain(within), *hidden])})",
        f"{len(proof.unknown)} of others left alone",
        f"{_plain(proof.residual_usd_per_hour)} billing beyond a lease.",
    ]
    return ", ".join(parts)


def _list_would_end(would_end: t.Sequence[BillEntry]) -> list[str]:
    return [f"would end {item.describe()}{f' ({item.problem})' if item.problem else ''}" for item in would_end] or [
        "would end nothing"
    ]


def list_proved(proof: TeardownProof) -> list[str]:
    """Return what ended, and apart from it what was never seen to end, or never made."""
    absent = [lease.name for lease in proof.leases if lease.how == "never_seen_to_end"]
    unmade = [lease.name for lease in proof.leases if lease.how == "never_made"]
    parts = [f"{len(proof.leases) - len(absent) - len(unmade)} proved gone"]
    if absent:
        parts.append(f"{len(absent)} not in their account (never seen to end: {', '.join(absent)})")
    if unmade:
        parts.append(f"{len(unmade)} never made")
    return parts


def _plain(usd_per_hour: float | None) -> str:
    return format_price(usd_per_hour).removeprefix("at ")
