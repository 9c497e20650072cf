# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an item of ``brev ls`` to a node record and variables."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ....module_utils._model.node import NodeState
from ..node_record import ProviderHost, build_record
from ..parsing import JsonObject
from ..ssh_config import mapping as ssh_mapping

PREFIX = "brev_"
_STATES: t.Final[Mapping[str, NodeState]] = {
    "RUNNING": "running",
    "CONNECTED": "running",
    "DEPLOYING": "creating",
    "STARTING": "creating",
    "STOPPING": "stopped",
    "STOPPED": "stopped",
    "FAILURE": "failed",
    "DELETING": "gone",
    "DISCONNECTED": "offline",
}


def to_host(item: JsonObject) -> ProviderHost:
    """Return the record and variables of a machine; how many GPUs it has, and its price, Brev's client does not say."""
    name, is_node = str(item["name"]), item["kind"] == "nodes"
    key = f"brev/{item.get('id') or name}"
    state = _STATES.get(str(item.get("status") or "").upper(), "unknown")
    way = ssh_mapping.to_host(t.cast(JsonObject, item["ssh"])) if item.get("ssh") else None
    addresses = way.record["addresses"] if way else {}
    record = build_record(
        key,
        name,
        "brev",
        "",
        # A node is a machine of one's own that was registered.
        "owned" if is_node else "rented",
        None,
        state,
        user=way.direct[2] if way and way.direct else None,
        mesh=tuple(entry["address"] for entry in addresses.get("mesh", [])),
        lan=tuple(entry["address"] for entry in addresses.get("lan", [])),
        public=tuple(entry["address"] for entry in addresses.get("public", [])),
        gpu=(_text(item, "gpu"), None, None),
        product=_text(item, "instance_type"),
    )
    data = {
        **(way.data if way else {}),
        f"{PREFIX}id": _text(item, "id"),
        f"{PREFIX}status": _text(item, "status"),
        f"{PREFIX}health_status": _text(item, "health_status"),
        f"{PREFIX}instance_type": _text(item, "instance_type"),
        f"{PREFIX}kind": "node" if is_node else "instance",
    }
    return ProviderHost(key, name, record, data, direct=way.direct if way else None)


def _text(item: JsonObject, field: str) -> str | None:
    value = item.get(field)
    return str(value) if value else None
