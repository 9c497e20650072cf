# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the fleet_heal module; its documentation is in plugins/modules/fleet_heal.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.fleet_heal import run as fleet_heal
from ..plugin_utils._workflows.node_pool import present as node_pool_present
from ..plugin_utils._workflows.node_pool.accounts import PROVIDERS


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches hosts over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **PROVIDERS,
        **STATE_HOME,
        "run_id": {"type": "str"},
        "hosts": {"type": "list", "elements": "str"},
        "on_lost_node": {"type": "str", "choices": ["wait", "replace", "shrink", "fail"]},
        "lost_nodes": {"type": "list", "elements": "str", "default": []},
        "preempted_nodes": {"type": "list", "elements": "str", "default": []},
        "notices": {"type": "dict", "default": {}},
        "noticed_at": {"type": "str"},
        "patience_s": {"type": "float", "default": 120},
        "rentable": {"type": "bool", "default": False},
        "joinable": {"type": "bool", "default": False},
        "gpu_faults": {"type": "bool", "default": True},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        "cluster_id": {"type": "str"},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        # None at all is an answer too: of a fleet that vanished the controller must not become a member.
        named = options["hosts"]
        request = self.request(
            options, variables, list(variables["ansible_play_hosts_all"]) if named is None else named
        )
        return fleet_heal.heal_fleet(
            request, node_pool_present.Context(self.base, self.check, report=self.reporter().say)
        )
