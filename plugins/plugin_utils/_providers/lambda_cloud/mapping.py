# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a Lambda instance to a node record."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._model.node import NodeState
from ..node_record import MAX_GPUS, ProviderHost, build_record, clean_address
from ..parsing import JsonObject, as_mapping, number, objects, text, texts, whole

# An instance that is terminating may still bill; only a listing without it proves that it does not.
STATES: t.Final[dict[str, NodeState]] = {
    "booting": "creating",
    "active": "running",
    "unhealthy": "failed",
    "terminating": "stopped",
    "terminated": "gone",
    "preempted": "gone",
}
USER = "ubuntu"


def gpu_memory_gib(description: str | None) -> float | None:
    """Return the memory of one GPU from ``H100 (80 GB SXM5)``; NVIDIA's GB of memory are GiB."""
    match = re.search(r"\((\d+) GB\b", description or "")
    return float(match.group(1)) if match else None


def cpu_arch(product: JsonObject) -> str | None:
    """Return the CPU architecture: API 1.10 names it, before only Grace machines differed."""
    named = {"x86_64": "x86_64", "arm64": "aarch64"}.get(str(product.get("architecture")))
    name = text(product.get("name"))
    return named or (None if name is None else "aarch64" if "gh200" in name or "gb200" in name else "x86_64")


def to_host(raw: JsonObject, account: str) -> ProviderHost:
    """Return the record of one instance. ``fabric_hint`` is the 1-Click Cluster, else the region's private network."""
    product, region = dict(as_mapping(raw.get("instance_type"))), text(as_mapping(raw.get("region")).get("name"))
    specs = as_mapping(product.get("specs"))
    cents = number(product.get("price_cents_per_hour"))
    description = text(product.get("gpu_description"))
    public, private = clean_address(raw.get("ip")), clean_address(raw.get("private_ip"))
    name = text(raw.get("name")) or text(raw.get("hostname")) or str(raw["id"])
    cluster = text(raw.get("cluster_id"))
    tags = [tag for tag in objects(raw.get("tags")) if tag.get("key")]
    gpus = whole(specs.get("gpus"), MAX_GPUS)
    return ProviderHost(
        id=str(raw["id"]),
        name=name,
        record=build_record(
            id=str(raw["id"]),
            name=name,
            provider="lambda",
            account=account,
            ownership="rented",
            kind="vm",
            state=STATES.get(str(raw.get("status")), "unknown"),
            product=text(product.get("name")),
            region=region,
            preemptible=False,
            user=USER,
            lan=(private,) if private else (),
            public=(public,) if public else (),
            gpu=(
                re.sub(r" \(.*", "", description) if description and gpus else None,
                gpus,
                gpu_memory_gib(description),
            ),
            cpu=(whole(specs.get("vcpus")), cpu_arch(product)),
            memory_gib=number(specs.get("memory_gib")),
            price_usd_per_hour=None if cents is None else cents / 100,
            fabric_hint=cluster or (region if private else None),
            k3s=(True, ()),
        ),
        data={
            "lambda_id": str(raw["id"]),
            "lambda_name": text(raw.get("name")),
            "lambda_hostname": text(raw.get("hostname")),
            "lambda_status": text(raw.get("status")),
            "lambda_region": region,
            "lambda_instance_type": text(product.get("name")),
            "lambda_tags": {str(tag["key"]): text(tag.get("value")) for tag in tags},
            "lambda_ssh_key_names": texts(raw.get("ssh_key_names")),
            "lambda_file_system_names": texts(raw.get("file_system_names")),
            "lambda_cluster_id": cluster,
        },
    )
