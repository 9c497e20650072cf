# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the k3s_node module; its documentation is in plugins/modules/k3s_node.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.k3s_node import request


class ActionModule(WorkflowAction):
    """Sends a few requests over the host's connection; an agent's token comes over the server's."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "state": {"type": "str", "choices": ["present", "restarted", "leaving", "absent"], "default": "present"},
        "role": {"type": "str", "choices": ["server", "agent"], "required": True},
        "node_name": {"type": "str"},
        "server": {"type": "str"},
        "server_address": {"type": "str"},
        "server_addresses": {"type": "list", "elements": "str", "default": []},
        "embedded_etcd": {"type": "bool", "default": False},
        "servers": {"type": "list", "elements": "str", "default": []},
        "leaving": {"type": "list", "elements": "str", "default": []},
        "api_address": {"type": "str"},
        "version": {"type": "str"},
        "source": {"type": "str"},
        "images": {"type": "list", "elements": "str", "default": []},
        "lock_file": {"type": "path"},
        "node_ip": {"type": "str"},
        "flannel_iface": {"type": "str"},
        "tls_san": {"type": "list", "elements": "str", "default": []},
        "cluster_cidr": {"type": "str", "default": "10.42.0.0/16"},
        "service_cidr": {"type": "str", "default": "10.43.0.0/16"},
        "taints": {"type": "list", "elements": "str", "default": []},
        "traefik": {"type": "bool", "default": False},
        "servicelb": {"type": "bool", "default": False},
        "memlock": {"type": "bool", "default": True},
        "default_runtime": {"type": "str", "default": "auto"},
        "registries": {"type": "dict", "default": {}},
        "config": {"type": "dict", "default": {}},
        "token": {"type": "str", "no_log": True},
        "token_ttl_s": {"type": "int", "default": 600, "no_log": False},
        "wait_s": {"type": "int", "default": 300},
        "adopt": {"type": "bool", "default": False},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        own = str(variables["inventory_hostname"])
        others = [options["server"]] if options["server"] else []
        if options["state"] == "leaving":
            others = options["servers"]
        remotes = self.connect(variables)([own, *(name for name in dict.fromkeys(others) if name != own)])
        sources = variables.get("ansible_inventory_sources") or []
        return request.run(options, remotes, sources, self.base, self.check, variables["hostvars"])
