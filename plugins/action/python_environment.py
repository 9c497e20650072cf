# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the python_environment module; its documentation is in plugins/modules/python_environment.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.commands import describe_installing
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._hosts import python_environment
from ..plugin_utils._workflows.shared.progress import say_if_killed


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the host over its own connection."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "path": {"type": "str", "required": True},
        "requirements": {"type": "list", "elements": "str", "required": True},
        "base_python": {"type": "str", "default": "python3"},
        "wait": {"type": "bool", "default": True},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        (remote,) = self.connect(variables)([variables["inventory_hostname"]])
        with say_if_killed(describe_installing([remote.name], "the training packages")):
            return python_environment.ensure_environment(remote, options, self.check, self.reporter().say)
