# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the tailscale_device module; its documentation is in plugins/modules/tailscale_device.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..plugin_utils._ansible.base import Face
    from ..plugin_utils._workflows import tailscale
    from ..plugin_utils._workflows.node_pool.accounts import API, TAILNET
    from ..plugin_utils._workflows.node_pool.present import Context


class ActionModule(Face):
    """Asks the tailnet's API from the controller, in process."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **API,
        **TAILNET,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "device_id": {"type": "str"},
        "name": {"type": "str"},
        "tags": {"type": "list", "elements": "str"},
        "routes": {"type": "list", "elements": "str"},
        "authorized": {"type": "bool"},
        "policy_file": {"type": "path"},
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {
        "required_one_of": [("device_id", "name", "policy_file")],
        "mutually_exclusive": [("device_id", "name", "policy_file")],
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        context = Context(self.base, self.check)
        if options["policy_file"]:
            return tailscale.ensure_policy(options, context)
        return tailscale.ensure_device(options, context)
