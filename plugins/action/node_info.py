# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_info module; its documentation is in plugins/modules/node_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.node_facts import find_mesh_peers
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import node_info


class ActionModule(WorkflowAction):
    """Sends one request over the host's connection; the node needs Python and nothing else."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "python": {"type": "str", "default": "python3"},
        "packages": {"type": "list", "elements": "str", "default": []},
        "facts": {"type": "bool", "default": True},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        name = str(variables["inventory_hostname"])
        remote = self.connect(variables)([name])[0]
        hosts = [name, *variables.get("ansible_play_hosts_all", [])]
        own = variables["hostvars"][name]
        peers = find_mesh_peers(name, {host: variables["hostvars"][host] for host in hosts})
        return node_info.gather_node_info(remote, own, options["python"], options["packages"], options["facts"], peers)
