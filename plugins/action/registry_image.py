# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the registry_image module; its documentation is in plugins/modules/registry_image.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import registry_image
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Runs in process on the controller; no host is asked."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "name": {"type": "str", "required": True},
        "archive": {"type": "path"},
        "source": {"type": "str"},
        **CONNECTION,
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return registry_image.run(self.request(options, variables, []))
