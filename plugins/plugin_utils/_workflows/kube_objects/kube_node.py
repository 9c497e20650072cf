# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cordons, uncordons, drains, taints or removes nodes of a cluster (``kube_node``)."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import typing as t
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ..._kube.api.client import Client
from ..._kube.nodes import drain, taints
from ..shared import cluster_identity
from ..shared.kube_connection import open_client
from ..shared.state_dir import StateHome

_AT_ONCE = 8

NodeResult = dict[str, object]
Way = Callable[[Client, str, float, Callable[[str], None], bool], drain.NodeRemoval]


def run(
    options: Mapping[str, t.Any], base: pathlib.Path, check: bool, tell: Callable[[str], None]
) -> dict[str, object]:
    """Return the result of ``kube_node``."""
    if options.get("ignore_environment") and not any(options.get(name) for name in ("kubeconfig", "context", "host")):
        return {"changed": False, "nodes": [], "requests": 0}
    client = open_client(options, base, tell)
    names = list(dict.fromkeys(str(name) for name in options["names"]))
    if not options.get("cluster_id"):
        # A cluster id among the options was checked by the client already.
        home = StateHome(options.get("state_home") or {}, options.get("cluster") or "default")
        cluster_identity.require_node_cluster(client, home, names)
    if options["state"] in ("absent", "drained"):
        way: Way = drain.remove_node if options["state"] == "absent" else drain.drain_node
        work = functools.partial(_drain, way, client, float(options["drain_timeout_s"]), tell, check)
    elif options["state"] == "tainted":
        work = functools.partial(_taint, client, _parse_taints(options["taints"]), check)
    else:
        work = functools.partial(_cordon, client, options["state"] == "cordoned", check)
    # The pods of several nodes end at the same time.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        nodes = list(pool.map(work, names))
    return {"changed": any(node.pop("changed") for node in nodes), "nodes": nodes, "requests": client.requests}


def _drain(
    way: Way, client: Client, timeout_s: float, tell: Callable[[str], None], check: bool, name: str
) -> NodeResult:
    removal = way(client, name, timeout_s, tell, check)
    return {**dataclasses.asdict(removal), "changed": removal.changed}


def _parse_taints(given: Mapping[str, t.Any]) -> dict[str, list[str]]:
    """Return the taints of each node; one that cannot be read is refused before any node is changed."""
    wanted = {str(name): [str(item) for item in items or []] for name, items in given.items()}
    for item in [item for items in wanted.values() for item in items]:
        taints.parse_taint(item)
    return wanted


def _taint(client: Client, wanted: Mapping[str, list[str]], check: bool, name: str) -> NodeResult:
    own = wanted.get(name, [])
    return {"node": name, "taints": own, "changed": taints.set_taints(client, name, own, check)}


def _cordon(client: Client, closed: bool, check: bool, name: str) -> NodeResult:
    return {"node": name, "cordoned": closed, "changed": drain.set_cordon(client, name, closed, check)}
