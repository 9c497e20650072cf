# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the k3s_cluster_info module; its documentation is in plugins/modules/k3s_cluster_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import k3s_cluster_info


class ActionModule(WorkflowAction):
    """Looks at all machines at once over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "cluster_cidr": {"type": "str", "default": "10.42.0.0/16"},
        "service_cidr": {"type": "str", "default": "10.43.0.0/16"},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        hosts, hostvars = options["hosts"], variables["hostvars"]
        known = {host: hostvars[host] for host in hosts if host in hostvars}
        return k3s_cluster_info.check_cluster(
            lambda: self.connect(variables)(hosts),
            {host: str(known[host].get("muster_k3s_role") or "") for host in known},
            {host: str((known[host].get("muster_node") or {}).get("name") or host) for host in known},
            {host: known[host]["k3s_labels"] for host in known if "k3s_labels" in known[host]},
            variables.get("ansible_play_hosts_all") or [],
            options["cluster_cidr"],
            options["service_cidr"],
        )
