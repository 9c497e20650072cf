# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_table module; its documentation is in plugins/modules/node_table.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import node_table


class ActionModule(WorkflowAction):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "nodes": {"type": "list", "elements": "dict", "required": True},
        "k3s": {"type": "bool", "default": True},
        "addresses": {"type": "dict", "default": {}},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        nodes = options["nodes"]
        return {
            "changed": False,
            "table": node_table.build_table(nodes, options["k3s"]),
            **node_table.check_link(nodes, options["addresses"]),
        }
