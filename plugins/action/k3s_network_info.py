# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the k3s_network_info module; its documentation is in plugins/modules/k3s_network_info.py."""

from __future__ import annotations

import secrets
import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import k3s_cluster_info


class ActionModule(WorkflowAction):
    """Has all machines send to each other at once, over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "nodes": {"type": "list", "elements": "dict", "required": True},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "wait_s": {"type": "int", "default": 15},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        addresses = {str(item["host"]): str(item["address"]) for item in options["nodes"]}
        nodes = {host: addresses[host] for host in options["hosts"]}
        return k3s_cluster_info.check_network(self.connect(variables), nodes, options["wait_s"], secrets.token_hex(8))
