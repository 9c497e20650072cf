# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the k3s_cluster_info module; its documentation is in plugins/modules/k3s_cluster_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.node_facts import find_mesh_peers
from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import k3s_cluster_info
from ..plugin_utils._workflows.shared.state_dir import StateHome

# What of a host is looked at: each is a template until it is asked for.
_VARIABLES = (
    "muster_cluster",
    "muster_k3s_role",
    "muster_node",
    "k3s_labels",
    "k3s_taints",
    "k3s_version",
    "k3s_node_ip",
    "k3s_flannel_iface",
    "k3s_config",
    "k3s_traefik",
    "k3s_servicelb",
    "ansible_host",
    "ansible_port",
    "ansible_user",
)


class ActionModule(WorkflowAction):
    """Looks at all machines at once over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "joining": {"type": "list", "elements": "str", "default": []},
        "cluster_cidr": {"type": "str", "default": "10.42.0.0/16"},
        "service_cidr": {"type": "str", "default": "10.43.0.0/16"},
        "adopt": {"type": "bool", "default": False},
        "downgrade": {"type": "bool", "default": False},
        "max_unavailable": {"type": "str"},
        "cluster_nodes": {"type": "list", "elements": "dict", "default": []},
        "cluster_pods": {"type": "list", "elements": "dict", "default": []},
        "cluster_deployments": {"type": "list", "elements": "dict", "default": []},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        hostvars = variables["hostvars"]
        hosts = [host for host in options["hosts"] if host in hostvars]
        known = {host: {name: hostvars[host][name] for name in _VARIABLES if name in hostvars[host]} for host in hosts}
        machines = {
            host: k3s_cluster_info.ClusterMachine(known[host], tuple(find_mesh_peers(host, known))) for host in hosts
        }
        upgrade = None
        if options["max_unavailable"] is not None:
            shown = (options[f"cluster_{kind}"] for kind in ("nodes", "pods", "deployments"))
            upgrade = k3s_cluster_info.K3sUpgrade(options["max_unavailable"], *shown)
        home = StateHome(options["state_home"], options["cluster"])
        return k3s_cluster_info.check_cluster(
            lambda: self.connect(variables)(hosts),
            machines,
            variables.get("ansible_play_hosts_all") or [],
            options["cluster_cidr"],
            options["service_cidr"],
            options["joining"],
            k3s_cluster_info.ClusterGuard(home, options["adopt"], options["downgrade"], upgrade),
        )
