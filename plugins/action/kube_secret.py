# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the kube_secret module; its documentation is in plugins/modules/kube_secret.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.kube_objects import kube_secret
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str"},
        "type": {"type": "str", "default": "Opaque"},
        "data": {"type": "dict", "no_log": True},
        "data_base64": {"type": "dict", "no_log": True},
        "labels": {"type": "dict"},
        "annotations": {"type": "dict"},
        "field_manager": {"type": "str", "default": "muster"},
        "force_conflicts": {"type": "bool", "default": False},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return kube_secret.run(options, self.base, self.check, bool(self._task.diff))
