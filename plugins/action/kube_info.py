# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the kube_info module; its documentation is in plugins/modules/kube_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.kube_objects import kube_info
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "kind": {"type": "str", "required": True},
        "api_version": {"type": "str"},
        "name": {"type": "str"},
        "namespace": {"type": "str"},
        "label_selectors": {"type": "list", "elements": "str", "default": []},
        "field_selectors": {"type": "list", "elements": "str", "default": []},
        "managed_fields": {"type": "bool", "default": False},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return kube_info.run(options, self.base)
