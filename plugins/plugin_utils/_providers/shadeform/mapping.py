# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a Shadeform instance to a node record."""

from __future__ import annotations

import typing as t

from ....module_utils._model.node import NodeState
from ..node_record import MAX_GPUS, ProviderHost, build_record, clean_address
from ..parsing import JsonObject, as_mapping, flag, moment, number, text, texts, whole

# An instance that is being deleted may still bill; only a listing without it proves that it does not.
STATES: t.Final[dict[str, NodeState]] = {
    "creating": "creating",
    "pending_provider": "creating",
    "pending": "creating",
    "active": "running",
    "error": "failed",
    "deleting": "stopped",
    "deleted": "gone",
}
_MAX_PORT = 65535


def to_host(raw: JsonObject, account: str) -> ProviderHost:
    """Return the record of one instance. Whether it is a VM, a container or a whole machine is not in the listing."""
    config = as_mapping(raw.get("configuration"))
    cents = number(raw.get("hourly_price"))
    address, port, user = clean_address(raw.get("ip")), whole(raw.get("ssh_port")), text(raw.get("ssh_user"))
    gpus, cluster = whole(config.get("num_gpus"), MAX_GPUS), text(raw.get("cluster_id"))
    name = text(raw.get("name")) or str(raw["id"])
    return ProviderHost(
        id=str(raw["id"]),
        name=name,
        record=build_record(
            id=str(raw["id"]),
            name=name,
            provider="shadeform",
            account=account,
            ownership="rented",
            kind=None,
            state=STATES.get(str(raw.get("status")), "unknown"),
            product=text(raw.get("shade_instance_type")),
            region=text(raw.get("region")),
            preemptible=False,
            user=user,
            public=(address,) if address else (),
            gpu=(
                text(config.get("gpu_type")) if gpus else None,
                gpus,
                number(config.get("vram_per_gpu_in_gb")),
            ),
            cpu=(whole(config.get("vcpus")), None),
            memory_gib=number(config.get("memory_in_gb")),
            price_usd_per_hour=None if cents is None else cents / 100,
            created_at=moment(raw.get("created_at")),
            fabric_hint=cluster,
        ),
        data={
            "shadeform_id": str(raw["id"]),
            "shadeform_name": text(raw.get("name")),
            "shadeform_status": text(raw.get("status")),
            "shadeform_status_details": text(raw.get("status_details")),
            "shadeform_cloud": text(raw.get("cloud")),
            "shadeform_region": text(raw.get("region")),
            "shadeform_instance_type": text(raw.get("shade_instance_type")),
            "shadeform_cloud_instance_type": text(raw.get("cloud_instance_type")),
            "shadeform_cloud_id": text(raw.get("cloud_assigned_id")),
            "shadeform_interconnect": text(config.get("interconnect")),
            "shadeform_nvlink": flag(config.get("nvlink")),
            "shadeform_os": text(config.get("os")),
            "shadeform_tags": texts(raw.get("tags")),
            "shadeform_cluster_id": cluster,
        },
        direct=(address, port, user) if address and port and port <= _MAX_PORT else None,
    )
