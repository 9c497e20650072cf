# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the cluster_backup_info module; its documentation is in plugins/modules/cluster_backup_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.cluster_backup import run


class ActionModule(WorkflowAction):
    """Decides with what was read of the host of the task; asks no machine."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "purpose": {"type": "str", "choices": ["backup", "restore"], "default": "backup"},
        "machine": {"type": "dict", "required": True},
        "backup": {"type": "str", "default": "newest"},
        "version": {"type": "str"},
        "servers": {"type": "int", "default": 1},
        "overwrite": {"type": "bool", "default": False},
        "again": {"type": "bool", "default": False},
        "store": {"type": "str"},
        "key": {"type": "str", "no_log": True},
        "key_file": {"type": "path", "no_log": False},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return run.examine(options, str(variables["inventory_hostname"]))
