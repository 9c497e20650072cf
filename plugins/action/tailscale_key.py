# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the tailscale_key module; its documentation is in plugins/modules/tailscale_key.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import tailscale
from ..plugin_utils._workflows.node_pool.accounts import API, TAILNET
from ..plugin_utils._workflows.node_pool.present import Context


class ActionModule(WorkflowAction):
    """Asks the tailnet's API from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **API,
        **TAILNET,
        **STATE_HOME,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "tags": {"type": "list", "elements": "str", "default": []},
        "expiry_s": {"type": "int", "default": 3600},
        "reusable": {"type": "bool", "default": False},
        "ephemeral": {"type": "bool", "default": True},
        "preauthorized": {"type": "bool", "default": True},
        "dest": {"type": "path"},
        "run_id": {"type": "str"},
        "key_id": {"type": "str", "no_log": False},
        "key_ids": {"type": "list", "elements": "str", "no_log": False},
        "wait_s": {"type": "int", "default": 120},
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {"required_if": [("state", "present", ["dest", "tags"])]}

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        context = Context(self.base, self.check)
        if options["state"] == "absent":
            return tailscale.ensure_key_absent(options, context)
        return tailscale.ensure_key_present(options, context)
