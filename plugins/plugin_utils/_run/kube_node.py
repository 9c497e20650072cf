# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of a cluster: closed for new pods, opened again, or taken out in order.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ...module_utils._model.errors import RefusedError
from .._kube import node_leave
from .._kube.client import Client
from .._rent.ledger_file import read
from . import cluster_identity
from .kube_access import Dict, open_client
from .state_home import StateHome

_AT_ONCE = 8


def run(options: Mapping[str, t.Any], base: pathlib.Path, check: bool, tell: Callable[[str], None]) -> Dict:
    """Return the result of ``kube_node``."""
    client = open_client(options, base, tell)
    names = list(dict.fromkeys(str(name) for name in options["names"]))
    _insist(client, StateHome(options.get("state_home") or {}, options.get("cluster") or "default"), names)
    work: Callable[[str], Dict]
    if options["state"] == "absent":
        work = _leaving(client, float(options["drain_timeout_s"]), tell, check)
    else:
        work = _closing(client, options["state"] == "cordoned", check)
    # The pods of many nodes end at the same time.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        nodes = list(pool.map(work, names))
    return {"changed": any(node.pop("changed") for node in nodes), "nodes": nodes, "requests": client.requests}


def _insist(client: Client, home: StateHome, names: t.Sequence[str]) -> None:
    """Refuse a cluster other than the one on which, by the ledger, a machine of these names had its last run.

    Names repeat from cluster to cluster, and a node of the same name elsewhere is somebody else's.
    """
    leases = read(home.folder).leases.values()
    last = {lease.name: lease for lease in sorted(leases, key=lambda lease: lease.intent_at) if lease.machine}
    places = {name: (last[name].run_place or {}).get("cluster") or {} for name in names if name in last}
    # Most nodes are of one cluster, and its id is a question to the server.
    for known, name in {str(place.get("cluster_id") or ""): name for name, place in places.items()}.items():
        seen = cluster_identity.elsewhere(client, {"cluster_id": known})
        if seen:
            raise RefusedError(
                f"{name} is a node of another cluster by the ledger ({known}) than {client.server} ({seen})",
                "Give the kubeconfig of that cluster; nothing was changed on this one",
            )


def _leaving(client: Client, timeout_s: float, tell: Callable[[str], None], check: bool) -> Callable[[str], Dict]:
    def one(name: str) -> Dict:
        left = node_leave.leave(client, name, timeout_s, tell, check)
        return {**dataclasses.asdict(left), "changed": left.changed}

    return one


def _closing(client: Client, closed: bool, check: bool) -> Callable[[str], Dict]:
    def one(name: str) -> Dict:
        changed = node_leave.cordon(client, name, closed, check)
        return {"node": name, "cordoned": closed, "changed": changed}

    return one
