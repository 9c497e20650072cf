# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a pod's launcher."""

from __future__ import annotations

import os
import re
import typing as t

from . import pod_preflight

_PLACEHOLDER = re.compile(r"(?<!\$)\{[a-z_]+\}")


def build_environment(
    spec: t.Mapping[str, t.Any],
    identity: pod_preflight.PodIdentity,
    own: t.Mapping[str, str],
    secrets: t.Mapping[str, str],
    address: str,
) -> dict[str, str]:
    """Return the variables of the launcher: inherited, this node's, the gang's, the secrets, and the user's, which win.

    :param address: the first node's.
    :raises PodRefusal: when they name a topology file that this pod does not have.
    """
    # Not every launcher can tell an IPv6 address from its port: these get the name.
    host = str(spec["coordinator"]) if ":" in address and spec.get("coordinator") else address
    node = {
        "MUSTER_NODE": identity.node,
        "MUSTER_ATTEMPT": str(identity.attempt),
        "MUSTER_ATTEMPT_BASE": str(identity.attempt),
        "NODE_RANK": str(identity.rank),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(spec["port"]),
        **own,
    }
    interface = pod_preflight.find_interface(address)
    if interface:
        node.update({"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface})
    for entry in spec.get("network", ()):
        if identity.node in entry["nodes"]:
            node.update(entry["variables"])
    values = {
        "{address}": host,
        "{rank}": str(identity.rank),
        "{attempt}": str(identity.attempt),
        "{own}": identity.address,
        "{first}": str(int(identity.rank == 0)),
    }
    gang = {key: replace_placeholders(str(text), values) for key, text in spec["env"].items()}
    # The launcher gets no rank: libraries that look for MPI would use it.
    inherited = {key: text for key, text in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    env = {**inherited, **node, **gang, **secrets, **spec.get("user_env", {})}
    if spec.get("gpus"):
        pod_preflight.require_topology_file(env.get("NCCL_TOPO_FILE", ""))
    return env


def replace_placeholders(text: str, values: t.Mapping[str, str]) -> str:
    """Replace the collection's placeholders; other braces are the user's, and ``${rank}`` is torchrun's."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), text)
