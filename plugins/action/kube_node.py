# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the kube_node module; its documentation is in plugins/modules/kube_node.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.kube_objects import kube_node
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        **STATE_HOME,
        "names": {"type": "list", "elements": "str", "required": True},
        "state": {
            "type": "str",
            "choices": ["absent", "cordoned", "drained", "schedulable", "tainted"],
            "default": "absent",
        },
        "taints": {"type": "dict", "default": {}},
        "ignore_environment": {"type": "bool", "default": False},
        "drain_timeout_s": {"type": "int", "default": 120},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return kube_node.run(options, self.base, self.check, self.reporter().say)
