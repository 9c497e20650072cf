# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known about the runs that leases belong to: their records first, else what their machines say.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError
from ....module_utils._model.ledger import Lease
from ....module_utils._node.files import read_json
from ..._provision.api import AccountApi, Scheduler
from ..._provision.delete import list_account
from ..._provision.due_rules import RunView
from ..._provision.run_exit_ssh import ReadRunEnd, find_ended_runs, is_bound_to_open_run, run_nodes

ReadClusterRun = t.Callable[[t.Mapping[str, t.Any]], RunView | None]


def read_run_records(folder: pathlib.Path, leases: t.Collection[Lease]) -> dict[str, RunView]:
    """Return what the run records in a cluster's folder say about the runs that leases belong to."""
    found = {}
    for run_id in {lease.run_id for lease in leases if lease.run_id and lease.open}:
        # A damaged record, or an id that is none, must not keep the deadline of a lease from being kept.
        name = valid_run_id(run_id)
        record = read_json(folder / "runs" / name / "run.json") if name else None
        if isinstance(record, dict):
            found[run_id] = RunView(str(record.get("state")), record.get("outcome"))
    return found


def _read_cluster_runs(
    leases: t.Collection[Lease], known: t.Mapping[str, RunView], ask: ReadClusterRun
) -> dict[str, RunView]:
    """Return how runs in pods ended whose record does not say so, each asked for once."""
    places: dict[str, t.Mapping[str, t.Any]] = {}
    for lease in leases:
        place = (lease.run_place or {}).get("cluster")
        if isinstance(place, t.Mapping) and is_bound_to_open_run(lease, known):
            places[str(lease.run_id)] = place
    views = {run_id: ask(place) for run_id, place in places.items()}
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
    found: t.Mapping[str, AccountApi],
    look: ReadRunEnd,
    scheduler: Scheduler,
    ask: ReadClusterRun | None = None,
) -> dict[str, RunView]:
    """Return how every run stands; who runs those without an end is asked, where the run decides a lease.

    :param ask: asks the cluster about a run in pods; None where no cluster can be asked.
    """
    known = read_run_records(folder, leases)
    if ask is not None:
        known |= _read_cluster_runs(leases, known, ask)
    waiting = [lease for lease in leases if lease.open and run_nodes(lease)]
    listed = {}
    for name in {lease.provider for lease in waiting} & set(found):
        listing = list_account(found[name], scheduler).listing
        if not listing.problem:
            listed[name] = listing.instances
    return {**known, **find_ended_runs(waiting, known, listed, look)}
