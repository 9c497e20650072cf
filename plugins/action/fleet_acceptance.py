# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the fleet_acceptance module; its documentation is in plugins/modules/fleet_acceptance.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.fleet_acceptance import run as fleet_acceptance


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "hosts": {"type": "list", "elements": "str"},
        "nodes": {"type": "int"},
        "tests": {
            "type": "list",
            "elements": "str",
            "choices": ["gpus", "fabric", "scaling", "queue", "user", "resume"],
            "default": ["gpus", "fabric", "scaling", "queue", "user", "resume"],
        },
        "job": {"type": "dict", "default": {}},
        "resume_job": {"type": "dict"},
        "kill_at_step": {"type": "int", "default": 50},
        "queue_nodes": {"type": "int"},
        "seconds": {"type": "float", "default": 5},
        "bench_args": {"type": "list", "elements": "str", "default": []},
        "efficiency_pass": {"type": "float", "default": 0.85},
        "efficiency_fail": {"type": "float", "default": 0.6},
        "islands": {"type": "list", "elements": "dict", "default": []},
        "expectations": {"type": "list", "elements": "dict", "default": []},
        "allow_unproven": {"type": "bool", "default": False},
        "user_kubeconfig": {"type": "raw"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        "dest": {"type": "path"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        request = self.request(options, variables, options["hosts"] or list(variables["ansible_play_hosts_all"]))
        return fleet_acceptance.accept_fleet(request)
