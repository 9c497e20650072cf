# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the cluster_backup module; its documentation is in plugins/modules/cluster_backup.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.cluster_backup import run


class ActionModule(WorkflowAction):
    """Takes an archive from the host of the task over its connection, or brings it there."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "state": {"type": "str", "choices": ["kept", "placed"], "default": "kept"},
        "archive": {"type": "str", "required": True},
        "machine": {"type": "dict"},
        "backup": {"type": "str", "default": "newest"},
        "store": {"type": "str"},
        "keep": {"type": "int", "default": 7},
        "key": {"type": "str", "no_log": True},
        "key_file": {"type": "path", "no_log": False},
        **STATE_HOME,
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {"required_if": [("state", "kept", ("machine",))]}

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        if self.check:
            return {"changed": True}
        (remote,) = self.connect(variables)([str(variables["inventory_hostname"])])
        return run.keep(options, remote) if options["state"] == "kept" else run.place(options, remote)
