# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create, scale or delete a CoreWeave node pool."""

from __future__ import annotations

from ...module_utils._http.clock import Clock
from ...module_utils._model import validators
from ...module_utils._model.errors import InputError, RefusedError, TransportError
from ...module_utils._secrets.sources import SecretSource
from .._providers.connection import ProviderConnection
from .._providers.coreweave.client import CoreweaveClient
from .._providers.coreweave.scale import DesiredPool, NodePool, NodePoolApi, build_patch
from .node_pool.accounts import Externals, ModuleResult, Options, build_connection
from .node_pool.present import Context

_POLL_S = 5.0
TOKEN = SecretSource("api_token", "api_token_file", ("COREWEAVE_API_TOKEN",))


def ensure_node_pool(options: Options, context: Context) -> ModuleResult:
    """Return the result of ``coreweave_node_pool``."""
    desired = _parse_options(options)
    api = NodePoolApi(_open_connection(options, context.externals), _find_endpoint(options, context.externals))
    live = api.get(desired.name)
    if options["state"] == "absent":
        timeout_s = validators.integer(0, 86400)(options["wait_timeout_s"], "wait_timeout_s")
        return _ensure_absent(api, live, context, timeout_s)
    if live is None:
        # Refuses a missing type of instance, in check mode too.
        desired.manifest()
    change = {} if live is None else build_patch(live, desired)
    after = _planned_pool(live, desired)
    changed = live is None or bool(change)
    if changed and not context.check:
        after = _create(api, desired) if live is None else api.scale(desired.name, change)
    before = live.to_dict() if live else {}
    return {
        "changed": changed,
        "node_pool": after.to_dict(),
        "diff": {"before": before, "after": after.to_dict()},
    }


def _parse_options(options: Options) -> DesiredPool:
    count = validators.integer(0, 100_000)
    target = options["target_nodes"] if options["target_nodes"] is not None else 0
    return DesiredPool(
        name=validators.name(63)(options["name"], "name"),
        target_nodes=count(target, "target_nodes"),
        instance_type=str(options["instance_type"]) if options.get("instance_type") else None,
        min_nodes=None if options.get("min_nodes") is None else count(options["min_nodes"], "min_nodes"),
        max_nodes=None if options.get("max_nodes") is None else count(options["max_nodes"], "max_nodes"),
        labels=validators.dictionary(options.get("labels") or {}, "labels"),
    )


def _open_connection(options: Options, externals: Externals) -> ProviderConnection:
    file = options.get("api_token_file")
    secret = TOKEN.need(options.get("api_token"), str(file) if file else None, externals.environ)
    return build_connection(options, secret, externals)


def _find_endpoint(options: Options, externals: Externals) -> str:
    """Return the address of the cluster's API server: given, or looked up by the cluster's name or id."""
    if options.get("endpoint"):
        return str(options["endpoint"])
    cluster = options["cluster"]
    clusters = CoreweaveClient(_open_connection(options, externals)).clusters()
    named = [item for item in clusters if cluster in (item.get("id"), item.get("name"))]
    if len(named) != 1:
        raise InputError("cluster", f"names {len(named)} clusters", "Give the id of one")
    state, endpoint = named[0].get("status"), named[0].get("apiServerEndpoint")
    if state not in ("STATUS_RUNNING", "STATUS_UPDATING", "STATUS_UPGRADING") or not endpoint:
        raise RefusedError(f"cluster {cluster} has no API server yet ({state})", "Wait until it is running")
    return str(endpoint)


def _planned_pool(live: NodePool | None, desired: DesiredPool) -> NodePool:
    """Return the pool after the change."""
    return NodePool(
        name=desired.name,
        instance_type=live.instance_type if live else desired.instance_type,
        target_nodes=desired.target_nodes,
        min_nodes=desired.min_nodes if desired.min_nodes is not None or live is None else live.min_nodes,
        max_nodes=desired.max_nodes if desired.max_nodes is not None or live is None else live.max_nodes,
        nodes=live.nodes if live else None,
    )


def _create(api: NodePoolApi, desired: DesiredPool) -> NodePool:
    """Create the pool; after a lost answer it is there, under its name, or it is not."""
    try:
        return api.create(desired)
    except TransportError as error:
        live = api.get(desired.name) if error.ambiguous else None
        if live is None:
            raise
        return live


def _ensure_absent(api: NodePoolApi, live: NodePool | None, context: Context, timeout_s: int) -> ModuleResult:
    if live is not None and not context.check:
        api.delete(live.name)
        _await_absence(api, live.name, context.externals.clock, timeout_s)
    before = live.to_dict() if live else {}
    return {"changed": live is not None, "node_pool": None, "diff": {"before": before, "after": {}}}


def _await_absence(api: NodePoolApi, name: str, clock: Clock, timeout_s: int) -> None:
    """Return when the pool is gone. A deleted object stays while its nodes are removed, and they bill until then."""
    end = clock.monotonic() + timeout_s
    while (live := api.get(name)) is not None:
        if clock.monotonic() >= end:
            nodes = "an unknown number of" if live.nodes is None else live.nodes
            raise RefusedError(
                f"node pool {name} still exists {timeout_s} s after it was deleted, with {nodes} nodes that may bill",
                "Run this again, or look at the pool's finalizers and conditions",
            )
        clock.sleep(_POLL_S)
