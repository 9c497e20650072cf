# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A CoreWeave node pool of a wanted size, or none.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ...module_utils._model import validators
from ...module_utils._model.errors import InputError, RefusedError
from ...module_utils._secrets.sources import SecretSource
from .._providers.coreweave.client import CoreweaveClient
from .._providers.coreweave.scale import DesiredPool, NodePool, NodePoolApi, build_patch
from .node_pool.accounts import Externals, build_connection
from .node_pool.present import Context, Dict

TOKEN = SecretSource("api_token", "api_token_file", ("COREWEAVE_API_TOKEN",))


def ensure_node_pool(options: Mapping[str, t.Any], context: Context) -> Dict:
    """Return the result of ``coreweave_node_pool``."""
    wish = _parse_options(options)
    api = NodePoolApi(_open_connection(options, context.externals), _find_endpoint(options, context.externals))
    found = api.get(wish.name)
    if options["state"] == "absent":
        return _ensure_absent(api, found, context.check)
    change = wish.manifest()["spec"] if found is None else build_patch(found, wish)
    after = _planned_pool(found, wish)
    if change and not context.check:
        after = api.create(wish) if found is None else api.scale(wish.name, change)
    before = found.to_dict() if found else {}
    return {
        "changed": bool(change),
        "node_pool": after.to_dict(),
        "diff": {"before": before, "after": after.to_dict()},
    }


def _parse_options(options: Mapping[str, t.Any]) -> DesiredPool:
    count = validators.integer(0, 100_000)
    target = options["target_nodes"] if options["target_nodes"] is not None else 0
    return DesiredPool(
        name=validators.name(63)(options["name"], "name"),
        target_nodes=count(target, "target_nodes"),
        instance_type=options.get("instance_type"),
        min_nodes=None if options.get("min_nodes") is None else count(options["min_nodes"], "min_nodes"),
        max_nodes=None if options.get("max_nodes") is None else count(options["max_nodes"], "max_nodes"),
        labels=validators.mapping(options.get("labels") or {}, "labels"),
    )


def _open_connection(options: Mapping[str, t.Any], externals: Externals) -> t.Any:
    secret = TOKEN.need(options.get("api_token"), options.get("api_token_file"), externals.environ)
    return build_connection(options, secret, externals)


def _find_endpoint(options: Mapping[str, t.Any], externals: Externals) -> str:
    """Return the address of the cluster's API server: given, or looked up by the cluster's name or id."""
    if options.get("endpoint"):
        return str(options["endpoint"])
    wanted = options["cluster"]
    clusters = CoreweaveClient(_open_connection(options, externals)).clusters()
    named = [item for item in clusters if wanted in (item.get("id"), item.get("name"))]
    if len(named) != 1:
        raise InputError("cluster", f"names {len(named)} clusters", "Give the id of one")
    state, endpoint = named[0].get("status"), named[0].get("apiServerEndpoint")
    if state not in ("STATUS_RUNNING", "STATUS_UPDATING", "STATUS_UPGRADING") or not endpoint:
        raise RefusedError(f"cluster {wanted} has no API server yet ({state})", "Wait until it runs")
    return str(endpoint)


def _planned_pool(found: NodePool | None, wish: DesiredPool) -> NodePool:
    """Return the pool as it will be once the change is made."""
    return NodePool(
        name=wish.name,
        instance_type=found.instance_type if found else wish.instance_type,
        target_nodes=wish.target_nodes,
        min_nodes=wish.min_nodes if wish.min_nodes is not None or found is None else found.min_nodes,
        max_nodes=wish.max_nodes if wish.max_nodes is not None or found is None else found.max_nodes,
        nodes=found.nodes if found else None,
    )


def _ensure_absent(api: NodePoolApi, found: NodePool | None, check: bool) -> Dict:
    if found is not None and not check:
        api.delete(found.name)
    before = found.to_dict() if found else {}
    return {"changed": found is not None, "node_pool": None, "diff": {"before": before, "after": {}}}
