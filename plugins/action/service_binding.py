# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the service_binding module; its documentation is in plugins/modules/service_binding.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.services import bind
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Asks all hosts of the play at once, over Ansible's own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        # Not a list here: the model itself says, by name, what is wrong with an entry.
        "services": {"type": "raw", "required": True},
        "hosts": {"type": "list", "elements": "str"},
        "require_all": {"type": "bool", "default": True},
        "pods": {"type": "raw"},
        **CONNECTION,
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        hosts = options["hosts"] if options["hosts"] is not None else list(variables["ansible_play_hosts_all"])
        return bind.run(self.request(options, variables, hosts))
