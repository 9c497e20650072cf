# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""End the records of runs whose machines are proved gone.

A controller that was killed records no end, and machines that a reaper has ended answer for none: the ledger is what
is left to say that a run is over.
"""

from __future__ import annotations

import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._model.ledger import Lease
from ....module_utils._model.run_record import RunRecord
from ....module_utils._model.timestamps import format_whole_seconds
from ..shared.run_record import end_record, write_record
from ..shared.state_dir import StateHome, load_record


def find_gone_since(record: RunRecord, leases: t.Iterable[Lease]) -> float | None:
    """Return since when all hosts of a run are proved gone (Unix seconds), None where one is not, or may not be."""
    if record.is_ended or record.backend != "hosts" or not record.hosts:
        return None
    gone = [lease for lease in leases if lease.machine and not lease.open]
    ended = {key: lease.changed_at for lease in gone for key in (lease.token, lease.name)}
    tokens = {node.id: node.token for attempt in record.attempts for node in attempt.nodes if node.token}
    times = [ended.get(str({**tokens, **record.leases}.get(name, name))) for name in record.hosts]
    return None if None in times else max(at for at in times if at is not None)


def end_gone_runs(home: StateHome, leases: t.Collection[Lease]) -> dict[str, RunRecord]:
    """End the records of runs whose hosts are all proved gone; return them by run id.

    A run that a process of this state home follows is left to it, as is one whose record cannot be read or written.
    """
    if all(lease.open or not lease.machine for lease in leases):
        return {}
    found = {}
    for folder in home.runs():
        try:
            record = load_record(folder)
            since = find_gone_since(record, leases) if record else None
            if record is None or since is None:
                continue
            with home.lock(record.run_id, 0.0):
                found[record.run_id] = _end(record, since)
                write_record(folder, found[record.run_id])
        except (RefusedError, OSError):
            continue
    return found


def _end(record: RunRecord, since: float) -> RunRecord:
    names, one = ", ".join(record.hosts), len(record.hosts) == 1
    detail = (
        f"{names} {'was' if one else 'were'} terminated and {'is' if one else 'are'} proved gone at "
        f"{format_whole_seconds(since)}, while no controller followed the run: what it did after its last record is "
        "not known"
    )
    return end_record(record, since, outcome="lost", exit_code=1, cause="node_lost", detail=detail)
