# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the release_file module; its documentation is in plugins/modules/release_file.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import release_file


class ActionModule(WorkflowAction):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "name": {"type": "str", "required": True},
        "version": {"type": "str"},
        "architecture": {"type": "str", "default": "any"},
        "source": {"type": "str"},
        "lock_file": {"type": "path"},
        "content": {"type": "bool", "default": False},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return release_file.run(options, variables.get("ansible_inventory_sources") or [], self.base, self.check)
