# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the gpu_verify module; its documentation is in plugins/modules/gpu_verify.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import gpu_verify
from ..plugin_utils._workflows.shared.kube_connection import CONNECTION


class ActionModule(WorkflowAction):
    """Talks to the API server from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **CONNECTION,
        "records": {"type": "list", "elements": "dict", "default": []},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "cordoned": {"type": "bool", "default": False},
        "ready_s": {"type": "int", "default": 0},
        "image": {"type": "str"},
        "namespace": {"type": "str", "default": "kube-system"},
        "pull_secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
        "runtime_class": {"type": "str"},
        "timeout_s": {"type": "int", "default": 300},
        "allow_unproven": {"type": "bool", "default": False},
        "max_age_s": {"type": "int", "default": 0},
        "cluster": {"type": "str", "default": "default"},
        "state_home": {"type": "dict", "default": {}},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return gpu_verify.run(options, self.base, self.check, self.reporter().say)
