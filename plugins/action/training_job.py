# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job module; its documentation is in plugins/modules/training_job.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.training_job import run as training_job


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        # Not a dict here: the job model itself says, by name, what is wrong with it.
        "job": {"type": "raw"},
        "run_id": {"type": "str"},
        "catalogue_template": {"type": "dict"},
        "state": {"type": "str", "choices": ["present", "cancelled"], "default": "present"},
        "hosts": {"type": "list", "elements": "str"},
        "template_paths": {"type": "list", "elements": "path", "default": []},
        "wait": {"type": "bool", "default": True},
        "take_over": {"type": "bool", "default": False},
        "recreate": {"type": "bool", "default": False},
        "extend": {"type": "bool", "default": False},
        "drill": {"type": "dict"},
        "notify": {"type": "dict", "no_log": True},
        "reports_url": {"type": "str"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        "cluster_id": {"type": "str"},
        "cluster_gone": {"type": "bool", "default": False},
        **STATE_HOME,
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {
        "required_if": [["state", "cancelled", ["run_id"]]],
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        request = self.request(options, variables, options["hosts"] or list(variables["ansible_play_hosts_all"]))
        return training_job.run(request)
