# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the export_info module; its documentation is in plugins/modules/export_info.py."""

from __future__ import annotations

import pathlib
import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.export_info import machines

# What of a host is read: each is a template until it is asked for. A password is only asked whether it is there.
_VARIABLES = (
    *("ansible_connection", "ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user"),
    *("ansible_ssh_user", "ansible_private_key_file", "ansible_ssh_private_key_file", "ansible_ssh_common_args"),
    "ansible_ssh_extra_args",
)
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")


class ActionModule(WorkflowAction):
    """Reads the inventory alone."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "to": {"type": "str", "required": True, "choices": list(machines.KINDS)},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "path": {"type": "path", "default": "."},
        "cluster": {"type": "str", "default": "default"},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        hostvars = variables["hostvars"]
        hosts = {name: self._read(hostvars[name]) for name in options["hosts"] if name in hostvars}
        path = self.base / (options["path"] or ".")
        return machines.make_export(options["to"], hosts, options["cluster"], path, pathlib.Path.cwd())

    @staticmethod
    def _read(of_host: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        read = {name: of_host[name] for name in _VARIABLES if name in of_host}
        return {**read, **{name: True for name in _PASSWORDS if name in of_host}}
