# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of local nodes: loopback addresses of the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: local
version_added: 0.1.0
short_description: Loopback addresses of the controller as nodes
description:
  - Lists O(nodes) nodes of the group C(muster_nodes) at V(127.0.0.1), V(127.0.0.2) and so on, each with its own state.
  - They are reached over the C(sshd) that M(muster.training.local_nodes) starts, or else over the local connection.
options:
  plugin:
    description: Must be V(muster.training.local).
    type: str
    required: true
    choices: [muster.training.local]
  nodes:
    description: Number of nodes.
    type: int
    default: 2
  prefix:
    description: What the nodes' names begin with; a number from 1 follows.
    type: str
    default: node-
  connection:
    description: V(auto) uses SSH when the C(sshd) of M(muster.training.local_nodes) runs.
    type: str
    choices: [auto, local]
    default: auto
  path:
    description: The state home; the default is C($XDG_STATE_HOME/muster) or C(~/.local/state/muster).
    type: str
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
# nodes.muster_local.yml
plugin: muster.training.local
nodes: 2
"""

import os
import sys
import typing as t

from ansible.plugins.inventory import BaseInventoryPlugin

from ..plugin_utils._workflows import local_nodes


class InventoryModule(BaseInventoryPlugin):
    """Reads ``*.muster_local.yml``."""

    NAME = "muster.training.local"

    def verify_file(self, path: str) -> bool:
        """Return whether the file is for this plugin."""
        known: t.Any = super()
        return bool(known.verify_file(path)) and path.endswith((".muster_local.yml", ".muster_local.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Add the nodes."""
        super().parse(inventory, loader, path, cache)
        # ansible-core's base class carries no annotations.
        own: t.Any = self
        own._read_config_data(path)
        root = own.get_option("path")
        shared = local_nodes.connection_variables(root, own.get_option("connection"))
        inventory.add_group("muster_nodes")
        for index in range(own.get_option("nodes")):
            name = f"{own.get_option('prefix')}{index + 1}"
            inventory.add_host(name, group="muster_nodes")
            for key, value in {**shared, **build_variables(name, index)}.items():
                inventory.set_variable(name, key, value)


def build_variables(name: str, index: int) -> dict[str, t.Any]:
    """Return the variables of the node with this number, from 0."""
    address = local_nodes.node_address(index)
    node = {
        "id": f"local/{name}",
        "name": name,
        "ownership": "owned",
        "provider": "local",
        "kind": "baremetal",
        "state": "running",
        "addresses": {"mesh": [], "lan": [{"address": address, "interface": "lo", "prefix": None}], "public": []},
        "network_types": ["lan"],
        "cpu": {"count": os.cpu_count(), "arch": os.uname().machine},
        "price_usd_per_hour": 0.0,
        "fabric_hint": "loopback",
    }
    return {"ansible_host": address, "ansible_python_interpreter": sys.executable, "muster_node": node}
