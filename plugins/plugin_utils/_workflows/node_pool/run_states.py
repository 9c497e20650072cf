# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the state of the runs that leases belong to: from their records first, else from their machines or cluster."""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError
from ....module_utils._model.lease import Instance
from ....module_utils._model.ledger import Lease
from ....module_utils._model.run_record import release_outcome
from ....module_utils._node.files import read_json
from ..._provision.bill.due_rules import RunView
from ..._provision.run_exit_ssh import ReadRunEnd, find_ended_runs, is_bound_to_open_run, run_nodes

ReadClusterRun = t.Callable[[t.Mapping[str, object]], RunView | None]


def read_run_records(folder: pathlib.Path, leases: t.Collection[Lease]) -> dict[str, RunView]:
    """Return the state of the runs that leases belong to, by the run records in a cluster's folder."""
    views = {}
    for run_id in {lease.run_id for lease in leases if lease.run_id and lease.open}:
        # A damaged record or an invalid id must not prevent that the deadline of a lease ends it.
        name = valid_run_id(run_id)
        record = read_json(folder / "runs" / name / "run.json") if name else None
        if isinstance(record, dict):
            views[run_id] = RunView(str(record.get("state")), release_outcome(record))
    return views


def _read_cluster_runs(
    leases: t.Collection[Lease], known: t.Mapping[str, RunView], read_run: ReadClusterRun
) -> dict[str, RunView]:
    """Return how runs in pods ended whose record has no end, each read once."""
    refs: dict[str, t.Mapping[str, object]] = {}
    for lease in leases:
        ref = (lease.run_place or {}).get("cluster")
        if isinstance(ref, t.Mapping) and is_bound_to_open_run(lease, known):
            refs[str(lease.run_id)] = ref
    views = {run_id: read_run(ref) for run_id, ref in refs.items()}
    return {run_id: view for run_id, view in views.items() if view is not None}


def valid_run_id(run_id: str) -> str | None:
    """Return a run id that is a plain name, None for any other text (a ledger may come from anywhere)."""
    try:
        return validators.name(63)(run_id, "run_id")
    except InputError:
        return None


def read_run_states(
    folder: pathlib.Path,
    leases: t.Collection[Lease],
    listed: t.Mapping[str, tuple[Instance, ...]],
    read_end: ReadRunEnd,
    read_cluster_run: ReadClusterRun | None = None,
) -> dict[str, RunView]:
    """Return the state of every run; of a run without a recorded end the machines are asked, where it decides a lease.

    :param listed: what the accounts list, by provider; those that could not be listed are not in it.
    :param read_cluster_run: reads a run in pods from its cluster; None without a cluster.
    """
    known = read_run_records(folder, leases)
    if read_cluster_run is not None:
        known |= _read_cluster_runs(leases, known, read_cluster_run)
    waiting = [lease for lease in leases if lease.open and run_nodes(lease)]
    return {**known, **find_ended_runs(waiting, known, listed, read_end)}
