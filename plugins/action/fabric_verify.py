# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the fabric_verify module; its documentation is in plugins/modules/fabric_verify.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.fabric_verify import run as fabric_verify

# Ansible prints the whole result of a failed task: the evidence is in the file and would hide the message.
_SHOWN = ("failed", "changed", "msg", "exit_code", "file", "table", "absent", "drift", "diff")
_COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "hosts": {"type": "list", "elements": "str"},
        "islands": {"type": "list", "elements": "dict", "default": []},
        "expectations": {"type": "list", "elements": "dict", "default": []},
        "backend": {"type": "str", "choices": ["nccl", "gloo"]},
        "collective": {"type": "str", "choices": _COLLECTIVES, "default": "all_reduce"},
        "seconds": {"type": "float", "default": 0.6},
        "timeout_s": {"type": "float", "default": 60},
        "bench": {"type": "str", "choices": ["torch", "nccl_tests"], "default": "torch"},
        "nccl_tests": {"type": "str"},
        "idle_only": {"type": "bool", "default": False},
        "max_age_s": {"type": "int", "default": 0},
        "allow_unproven": {"type": "bool", "default": False},
        "python": {"type": "str"},
        # Not a dict: the job model reports errors with the name of the key.
        "job": {"type": "raw"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        request = self.request(options, variables, options["hosts"] or list(variables["ansible_play_hosts_all"]))
        result = fabric_verify.run(request)
        return {key: result[key] for key in _SHOWN if key in result} if result.get("failed") else result
