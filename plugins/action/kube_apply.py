# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the kube_apply module; its documentation is in plugins/modules/kube_apply.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.kube_objects import kube_apply
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "objects": {"type": "raw"},
        "src": {"type": "list", "elements": "path"},
        "namespace": {"type": "str"},
        "field_manager": {"type": "str", "default": "muster"},
        "force_conflicts": {"type": "bool", "default": False},
        "validate": {"type": "bool", "default": False},
        "prune": {"type": "bool", "default": False},
        "prune_labels": {"type": "dict"},
        "prune_kinds": {"type": "list", "elements": "str"},
        "timeout_s": {"type": "int", "default": 60},
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {
        "required_one_of": [("objects", "src", "prune")],
        "required_if": [("prune", True, ["prune_labels"])],
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return kube_apply.run(options, self.base, self.check, bool(self._task.diff), self.reporter().say)
