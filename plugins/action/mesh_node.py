# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the mesh_node module; its documentation is in plugins/modules/mesh_node.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.mesh_node import node


class ActionModule(WorkflowAction):
    """Sends a few requests over the host's connection."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "auth_key_file": {"type": "path", "no_log": False},
        "login_server": {"type": "str"},
        "hostname": {"type": "str"},
        "node_name": {"type": "str"},
        "accept_dns": {"type": "bool"},
        "accept_routes": {"type": "bool"},
        "advertise_routes": {"type": "list", "elements": "str"},
        "ssh": {"type": "bool"},
        "userspace": {"type": "bool", "default": False},
        "port": {"type": "int", "default": 41641},
        "version": {"type": "str"},
        "source": {"type": "str"},
        "lock_file": {"type": "path"},
        "wait_s": {"type": "int", "default": 60},
        "peers": {"type": "list", "elements": "str", "default": []},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        name = str(variables["inventory_hostname"])
        (remote,) = self.connect(variables)([name])
        address = str(self._templar.template(variables.get("ansible_host")) or name)
        sources = variables.get("ansible_inventory_sources") or []
        return node.run(options, remote, address, sources, self.base, self.check)
