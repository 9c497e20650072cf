# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the service_deploy module; its documentation is in plugins/modules/service_deploy.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.services import deploy
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Asks the service's host over Ansible's own connection, or the cluster's API server."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        # Not a dictionary here: the model itself says, by name, what is wrong with it.
        "service": {"type": "raw", "required": True},
        "source": {"type": "str"},
        "lock_file": {"type": "path"},
        "wait_s": {"type": "int", "default": 120},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        request = self.request(options, variables, [])
        sources = variables.get("ansible_inventory_sources") or []
        return deploy.run(
            request,
            sources,
            source=str(options["source"] or ""),
            lock_file=options["lock_file"],
            wait_s=options["wait_s"],
        )
