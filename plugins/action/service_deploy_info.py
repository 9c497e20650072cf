# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the service_deploy_info module; its documentation is in plugins/modules/service_deploy_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.services import deploy_info
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Asks the cluster's API server about all services at once, and reads the state home."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        # Not a list here: the model itself says, by name, what is wrong with an entry.
        "services": {"type": "raw", "required": True},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return deploy_info.run(self.request(options, variables, []), variables.get("ansible_inventory_sources") or [])
