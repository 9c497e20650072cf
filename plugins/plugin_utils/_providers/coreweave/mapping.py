# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a CoreWeave cluster to a record: an entry for a managed cluster, not a machine to log in to."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._model.node import NodeState
from ..node_record import HostVariables, ProviderHost, build_record
from ..parsing import JsonObject, as_mapping, flag, objects, text, whole

STATES: t.Final[dict[str, NodeState]] = {
    "STATUS_CREATING": "creating",
    "STATUS_RUNNING": "running",
    "STATUS_UPDATING": "running",
    "STATUS_UPGRADING": "running",
    "STATUS_DELETING": "stopped",
    "STATUS_DELETED": "gone",
    "STATUS_FAILED": "failed",
}
REASON = "managed Kubernetes: nothing to install; bind it as a cluster"


def build_pool_variables(pool: t.Mapping[str, object]) -> HostVariables:
    """Return one node pool with variable-like keys."""
    named = {re.sub(r"(?=[A-Z])", "_", key).lower(): pool.get(key) for key in ("name", "instanceType", "computeClass")}
    counts = {f"{key}_nodes": whole(pool.get(f"{key}Nodes")) for key in ("target", "min", "max")}
    return {**named, **counts, "autoscaling": flag(pool.get("autoscaling"))}


def to_host(raw: JsonObject, account: str) -> ProviderHost:
    """Return the record of one cluster; ``coreweave_node_pools`` is None where pools were not read."""
    ident, endpoint = str(raw["id"]), text(raw.get("apiServerEndpoint"))
    name = text(raw.get("name")) or ident
    pools = None if raw.get("nodePools") is None else objects(raw.get("nodePools"))
    return ProviderHost(
        id=ident,
        name=name,
        record=build_record(
            id=ident,
            name=name,
            provider="coreweave",
            account=account,
            ownership="managed",
            kind="cluster",
            state=STATES.get(str(raw.get("status")), "unknown"),
            product="cks",
            region=text(raw.get("zone")),
            fabric_hint=ident,
            k3s=(False, (REASON,)),
        ),
        data={
            "coreweave_id": ident,
            "coreweave_name": text(raw.get("name")),
            "coreweave_status": text(raw.get("status")),
            "coreweave_zone": text(raw.get("zone")),
            "coreweave_version": text(raw.get("version")),
            "coreweave_vpc_id": text(raw.get("vpcId")),
            "coreweave_public": flag(raw.get("public")),
            "coreweave_network": dict(as_mapping(raw.get("network"))),
            "coreweave_api_server": f"https://{endpoint}" if endpoint else None,
            "coreweave_node_pools": None if pools is None else [build_pool_variables(pool) for pool in pools],
        },
    )
