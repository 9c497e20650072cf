# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the kube_wait module; its documentation is in plugins/modules/kube_wait.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.kube_objects import kube_wait
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "objects": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "apiVersion": {"type": "str"},
                "kind": {"type": "str", "required": True},
                "name": {"type": "str"},
                "namespace": {"type": "str"},
                "labels": {"type": "dict"},
                "count": {"type": "int", "default": 1},
                "action": {"type": "str"},
            },
        },
        "until": {"type": "str", "choices": ["done", "running", "present", "absent"], "default": "done"},
        "condition": {
            "type": "dict",
            "options": {"type": {"type": "str", "required": True}, "status": {"type": "str", "default": "True"}},
        },
        "timeout_s": {"type": "int", "default": 300},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return kube_wait.run(options, self.base, self.check, self.reporter().say)
