# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the leases for node_exporter's textfile collector, which the reaper writes after each pass."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ....module_utils._model.errors import MusterError
from ....module_utils._model.ledger import Lease
from ....module_utils._model.timestamps import parse_time
from ....module_utils._node import files

USD_PER_HOUR: t.Final = "muster_lease_usd_per_hour"
DEADLINE: t.Final = "muster_lease_deadline_seconds"
PASS: t.Final = "muster_reaper_pass_seconds"


def describe_leases(leases: t.Iterable[Lease], now: float) -> str:
    """Return a line for the price and the deadline of each machine that is leased, and when this was (Unix seconds)."""
    lines = [f"{PASS} {now:.3f}"]
    for lease in leases:
        if not lease.open or not lease.machine:
            continue
        # A label's value is quoted as JSON is.
        labels = f"node={json.dumps(lease.name)},pool={json.dumps(lease.pool)},provider={json.dumps(lease.provider)}"
        if lease.usd_per_hour is not None:
            lines.append(f"{USD_PER_HOUR}{{{labels}}} {lease.usd_per_hour:.6g}")
        if lease.deadline:
            lines.append(f"{DEADLINE}{{{labels}}} {parse_time(lease.deadline):.3f}")
    return "".join(f"{line}\n" for line in lines)


def write_leases(place: str, leases: t.Iterable[Lease], now: float) -> str:
    """Write the file, readable for all; return what kept it from being written, empty without a problem."""
    try:
        files.write_atomic(pathlib.Path(place), describe_leases(leases, now).encode(), 0o644)
    except (OSError, MusterError) as error:
        return f"metrics_file: {place} was not written: {error}"
    return ""
