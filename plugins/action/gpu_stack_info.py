# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the gpu_stack_info module; its documentation is in plugins/modules/gpu_stack_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.gpu_stack_plan import PROVIDERS
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.device_stacks import gpu_stack_info
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "provider": {"type": "str", "choices": list(PROVIDERS), "default": "device_plugin"},
        "records": {"type": "list", "elements": "dict", "default": []},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "by_tag": {"type": "bool", "default": False},
        "refuse": {"type": "bool", "default": True},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return gpu_stack_info.run(options, self.base)
