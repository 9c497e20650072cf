# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the rdma_stack_info module; its documentation is in plugins/modules/rdma_stack_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.rdma_stack_plan import PROVIDERS
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.device_stacks import rdma_stack_info
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "provider": {"type": "str", "choices": list(PROVIDERS), "default": "shared_device_plugin"},
        "devices": {"type": "list", "elements": "dict", "default": []},
        "operator_version": {"type": "str"},
        "operator_values": {"type": "dict", "default": {}},
        "policy": {"type": "dict", "default": {}},
        "image": {"type": "str"},
        "images": {"type": "dict", "default": {}},
        "ipam": {"type": "dict", "default": {}},
        "vfs": {"type": "int", "default": 1},
        "by_tag": {"type": "bool", "default": False},
        "refuse": {"type": "bool", "default": True},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        known = variables["hostvars"]
        devices = {host: value for part in options["devices"] for host, value in part.items()}
        named = {host: known[host].get("muster_node") or {} for host in devices if host in known}
        by_node = {str(named.get(host, {}).get("name") or host): value for host, value in devices.items()}
        return rdma_stack_info.run({**options, "devices": by_node}, self.base)
