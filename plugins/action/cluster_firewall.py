# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the cluster_firewall module; its documentation is in plugins/modules/cluster_firewall.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.firewall import JOB_PORTS
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import cluster_firewall


class ActionModule(WorkflowAction):
    """Sends one request to each host at once over its own connection."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "nodes": {"type": "list", "elements": "dict", "default": []},
        "cluster_cidr": {"type": "str", "default": "10.42.0.0/16"},
        "api_from": {"type": "list", "elements": "str", "default": []},
        "job_ports": {"type": "list", "elements": "str", "default": list(JOB_PORTS)},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return cluster_firewall.ensure_firewall(self.connect(variables), options, self.check)
