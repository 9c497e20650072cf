# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a Vast.ai instance to a node record."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._model.node import NodeState
from ..node_record import CONTAINER, MAX_GPUS, ProviderHost, build_record, clean_address
from ..parsing import JsonObject, as_mapping, epoch, flag, number, text, whole

STATES: t.Final[dict[str, NodeState]] = {
    "created": "creating",
    "loading": "creating",
    "scheduling": "creating",
    "rebooting": "creating",
    "running": "running",
    "stopped": "stopped",
    "frozen": "stopped",
    "exited": "failed",
    "offline": "offline",
}
USER = "root"
_MIB_PER_GIB = 1024
_MAX_PORT = 65535


def parse_state(raw: JsonObject) -> NodeState:
    """Return the state of an instance; a status of null is one that has not begun.

    ``created`` with an error of the container runtime never starts. All three states stopped means outbid.
    """
    status = raw.get("actual_status")
    if all(raw.get(key) == "stopped" for key in ("cur_state", "intended_status", "next_state")):
        return "stopped"
    if status is None:
        return "creating"
    if status == "created" and "OCI runtime create failed" in str(raw.get("status_msg")):
        return "failed"
    return STATES.get(str(status), "unknown")


def is_vm(raw: JsonObject) -> bool:
    """Return whether the instance is a virtual machine: those run images of ``vastai/kvm``."""
    return bool(re.match(r"(docker\.io/)?vastai/kvm\b", str(raw.get("image_uuid"))))


def direct_ssh(raw: JsonObject) -> tuple[str, int, str | None] | None:
    """Return the SSH endpoint: the mapped port where there is one, else the provider's gateway; never a mixture."""
    mapped = as_mapping(raw.get("ports")).get("22/tcp")
    first = as_mapping(mapped[0]) if isinstance(mapped, list) and mapped else {}
    host, port = clean_address(raw.get("public_ipaddr")), whole(first.get("HostPort"))
    if not (host and port):
        host, port = text(raw.get("ssh_host")), whole(raw.get("ssh_port"))
        # The gateway's SSH port of notebook images is the one after that of the notebook.
        port = port + 1 if port and "jupyter" in str(raw.get("image_runtype")) else port
    return (host, port, USER) if host and port and port <= _MAX_PORT else None


def memory_gib(raw: JsonObject) -> float | None:
    """Return the instance's share of the machine's memory (MiB in the API), by its share of the cores."""
    total, cores, share = (number(raw.get(key)) for key in ("cpu_ram", "cpu_cores", "cpu_cores_effective"))
    if total is None:
        return None
    part = min(1.0, share / cores) if share and cores else 1.0
    return round(total * part / _MIB_PER_GIB, 1)


def to_host(raw: JsonObject, account: str) -> ProviderHost:
    """Return the record of one instance."""
    ident, vm, direct = str(raw["id"]), is_vm(raw), direct_ssh(raw)
    name = text(raw.get("label")) or f"vast-{ident}"
    public = clean_address(raw.get("public_ipaddr"))
    gpu_ram, cores = number(raw.get("gpu_ram")), number(raw.get("cpu_cores_effective"))
    return ProviderHost(
        id=ident,
        name=name,
        record=build_record(
            id=ident,
            name=name,
            provider="vastai",
            account=account,
            ownership="rented",
            kind="vm" if vm else "container",
            state=parse_state(raw),
            product=text(raw.get("gpu_name")),
            region=text(raw.get("geolocation")),
            preemptible=flag(raw.get("is_bid")),
            user=USER,
            public=(public,) if public else (),
            gpu=(
                text(raw.get("gpu_name")),
                whole(raw.get("num_gpus"), MAX_GPUS),
                None if gpu_ram is None else round(gpu_ram / _MIB_PER_GIB, 1),
            ),
            cpu=(
                None if cores is None else whole(int(cores)),
                {"amd64": "x86_64", "arm64": "aarch64"}.get(str(raw.get("cpu_arch"))),
            ),
            memory_gib=memory_gib(raw),
            price_usd_per_hour=number(raw.get("dph_total")),
            created_at=epoch(raw.get("start_date")),
            fabric_hint=text(raw.get("cluster_id")),
            k3s=(vm, () if vm else (CONTAINER,)),
        ),
        data={
            "vastai_id": ident,
            "vastai_label": text(raw.get("label")),
            "vastai_status": text(raw.get("actual_status")),
            "vastai_machine_id": text(raw.get("machine_id")),
            "vastai_host_id": text(raw.get("host_id")),
            "vastai_image": text(raw.get("image_uuid")),
            "vastai_template": text(raw.get("template_name")),
            "vastai_geolocation": text(raw.get("geolocation")),
            "vastai_verification": text(raw.get("verification")),
            "vastai_reliability": number(raw.get("reliability2")),
            "vastai_disk_gib": number(raw.get("disk_space")),
            "vastai_nvlink_gb_s": number(raw.get("bw_nvlink")),
            "vastai_ends_at": epoch(raw.get("end_date")),
            "vastai_direct_ports": whole(raw.get("direct_port_count")),
            "vastai_reachable": direct is not None,
        },
        direct=direct,
    )
