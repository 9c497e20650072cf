# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the coreweave_node_pool module; its documentation is in plugins/modules/coreweave_node_pool.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import coreweave_node_pool
from ..plugin_utils._workflows.node_pool.accounts import API
from ..plugin_utils._workflows.node_pool.present import Context


class ActionModule(WorkflowAction):
    """Asks the cluster's API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **{key: value for key, value in API.items() if key != "account"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "cluster": {"type": "str"},
        "endpoint": {"type": "str"},
        "name": {"type": "str", "required": True},
        "target_nodes": {"type": "int"},
        "min_nodes": {"type": "int"},
        "max_nodes": {"type": "int"},
        "instance_type": {"type": "str"},
        "labels": {"type": "dict", "default": {}},
        "wait_timeout_s": {"type": "int", "default": 600},
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {
        "required_one_of": [("cluster", "endpoint")],
        "mutually_exclusive": [("cluster", "endpoint")],
        "required_if": [("state", "present", ["target_nodes"])],
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return coreweave_node_pool.ensure_node_pool(options, Context(self.base, self.check))
