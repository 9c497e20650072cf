# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster something is of: the uid of its namespace kube-system and its CA, each as far as it may be read.

A run stays on the cluster on which it was started: on another one a running run would not be found, and would be
started there a second time. What was proven on one cluster, such as a network or a bucket that pods reach, says nothing
of another one that has its name.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ....module_utils._model.cluster_id import is_other_cluster
from ....module_utils._model.errors import RefusedError
from ..._kube.api.client import Client
from ..._provision.ledger import ledger_store
from .state_dir import StateHome, read_record


def other_cluster_id(client: Client, reference: Mapping[str, t.Any]) -> str:
    """Return the id of this cluster when it is another one than that of ``reference`` (a run's ``backend_ref``).

    Empty for the same cluster, and where one of the two ids is unknown.
    """
    known = str(reference.get("cluster_id") or "")
    seen = client.cluster_id() if known else ""
    return seen if is_other_cluster(known, seen) else ""


def require_same_cluster(client: Client, record: Mapping[str, t.Any] | None, *, ended: bool = False) -> None:
    """Refuse another cluster than the one on which the run of this record was started.

    A run that has ended may continue elsewhere; with ``ended`` its former cluster is required, too.
    """
    if record is None or (record.get("state") == "ended" and not ended):
        return
    reference = record.get("backend_ref") or {}
    known, seen = reference.get("cluster_id"), other_cluster_id(client, reference)
    if seen:
        run, context = record.get("run_id"), reference.get("context")
        fix = "Give the kubeconfig of that cluster" + (f" (its context was {context})" if context else "")
        raise RefusedError(f"run {run} was started on another cluster ({known}) than {client.server} ({seen})", fix)


def ledger_clusters(home: StateHome, names: Collection[str] | None = None) -> dict[str, str]:
    """Return by id the clusters on which machines had their last run, by the ledger, each with one machine's name.

    :param names: the machines; None for all whose lease is open.
    """
    leases = ledger_store.read_ledger(home.folder).leases.values()
    last = {lease.name: lease for lease in sorted(leases, key=lambda lease: lease.intent_at) if lease.machine}
    found: dict[str, str] = {}
    for name, lease in last.items():
        known = str(((lease.run_place or {}).get("cluster") or {}).get("cluster_id") or "")
        if known and (lease.open if names is None else name in names):
            found.setdefault(known, name)
    return found


def require_ledger_cluster(client: Client, home: StateHome) -> None:
    """Refuse to begin a run on a cluster that has none of the rented machines, when others have them by the ledger."""
    known = ledger_clusters(home)
    seen = client.cluster_id() if known else ""
    if known and all(is_other_cluster(item, seen) for item in known):
        there, name = next(iter(known.items()))
        raise RefusedError(
            f"{name} is a node of another cluster in the ledger ({there}) than {client.server} ({seen})",
            "Give the kubeconfig of that cluster, or another muster_cluster for runs on this one. If the machines"
            f" belong to this one now, say so with muster_cluster_id: {seen}",
        )


def require_node_cluster(client: Client, home: StateHome, names: Collection[str]) -> None:
    """Refuse a cluster other than the one on which, by the ledger, a machine of these names had its last run.

    Names repeat from cluster to cluster, and a node of the same name elsewhere belongs to others.
    """
    # Most nodes are of one cluster, and its id is a question to the server.
    for known, name in ledger_clusters(home, names).items():
        seen = other_cluster_id(client, {"cluster_id": known})
        if seen:
            raise RefusedError(
                f"{name} is a node of another cluster in the ledger ({known}) than {client.server} ({seen})",
                "Give the kubeconfig of that cluster; nothing was changed on this one. If its machines belong to this"
                f" one now (moved, or its control plane was rebuilt), say so with muster_cluster_id: {seen}",
            )


def require_run_cluster(client: Client, home: StateHome, names: Collection[str]) -> None:
    """Refuse a cluster other than the one on which the newest run was that had a node of these names.

    For nodes that were not rented: the ledger has no line of them.
    """
    left = set(names)
    for folder in home.runs() if left else ():
        try:
            record = read_record(folder) or {}
        except RefusedError:
            # A damaged record says nothing about its nodes.
            continue
        here = left & set(record.get("hosts") or ()) if record.get("backend") == "kubernetes" else set()
        if here:
            require_same_cluster(client, record, ended=True)
            left -= here
