# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_device_info module; its documentation is in plugins/modules/node_device_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.device_plans import OPTION_NAMES, ROLES
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import node_device_info


class ActionModule(WorkflowAction):
    """Sends one request to each host at once over its own connection."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "hosts": {"type": "list", "elements": "str"},
        "roles": {"type": "list", "elements": "str", "choices": list(ROLES), "default": list(ROLES)},
        "refuse": {"type": "bool", "default": True},
        "max_unavailable": {"type": "str"},
        "cluster_nodes": {"type": "list", "elements": "dict", "default": []},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        own = str(variables["inventory_hostname"])
        hosts = options["hosts"] or [own]
        # The defaults of the role that calls are known of its own host only.
        known = {host: variables if host == own else variables["hostvars"][host] for host in hosts}
        asked = {
            host: {
                role: {
                    key: self._templar.template(known[host][f"{role}_{key}"])
                    for key in OPTION_NAMES[role]
                    if f"{role}_{key}" in known[host]
                }
                for role in ROLES
            }
            for host in hosts
        }
        remotes = self.connect(variables)(hosts)
        waves = None
        if options["max_unavailable"] is not None:
            names = {host: str((known[host].get("muster_node") or {}).get("name") or host).lower() for host in hosts}
            waves = node_device_info.Waves(options["max_unavailable"], names, options["cluster_nodes"])
        return node_device_info.read_device_plans(remotes, asked, options["roles"], options["refuse"], waves)
