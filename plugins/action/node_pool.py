# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_pool module; its documentation is in plugins/modules/node_pool.py."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible import constants as C

from ..plugin_utils._ansible import connections
from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.node_pool import absent as node_pool_absent
from ..plugin_utils._workflows.node_pool import ledger_replica
from ..plugin_utils._workflows.node_pool import present as node_pool_present
from ..plugin_utils._workflows.node_pool.accounts import PROVIDERS


class ActionModule(WorkflowAction):
    """Creates and deletes nodes from the controller, in process."""

    REQUIRES_KNOWN_VARIABLES: t.ClassVar[bool] = True
    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        **PROVIDERS,
        **STATE_HOME,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "pool": {"type": "str"},
        "count": {"type": "int", "default": 1},
        "shrink": {"type": "bool", "default": False},
        "candidates": {"type": "list", "elements": "dict", "default": []},
        "mixed": {"type": "bool", "default": False},
        "max_price_usd_per_hour": {"type": "float"},
        "max_total_usd_per_hour": {"type": "float"},
        "lease_s": {"type": "int"},
        "run_id": {"type": "str"},
        "release": {"type": "str", "choices": ["success", "always", "never"]},
        "max_cost_usd": {"type": "float"},
        "ssh_public_key": {"type": "str"},
        "ssh_public_key_file": {"type": "path"},
        "ssh_private_key_file": {"type": "path"},
        "user_data": {"type": "str", "no_log": True},
        "readiness": {"type": "dict", "default": {}},
        "wait_timeout_s": {"type": "int", "default": 1800},
        "capacity_wait_s": {"type": "int", "default": 0},
        "max_replacements": {"type": "int", "default": 3},
        "release_timeout_s": {"type": "int", "default": 900},
        "nodes": {"type": "list", "elements": "str"},
        "due_only": {"type": "bool", "default": False},
        "orphans": {"type": "str", "choices": ["report", "delete"], "default": "report"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        "hygiene": {"type": "list", "elements": "dict", "default": []},
        "reaper_host": {"type": "str"},
        "reaper_state": {"type": "path", "default": ledger_replica.STATE},
    }
    RULES: t.ClassVar[dict[str, t.Any]] = {"required_if": [("state", "present", ["pool", "candidates"])]}

    def is_ending(self, options: dict[str, t.Any]) -> bool:
        """Return whether everything named ends. What is only due may have got another deadline elsewhere."""
        return options["state"] == "absent" and not options["due_only"]

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        context = node_pool_present.Context(self.base, self.check, report=self.reporter().say)
        if options["state"] == "absent":
            return node_pool_absent.ensure_absent(options, context)
        if options.get("reaper_host"):
            # The play's connection is that of the controller; this is another machine.
            names, usual = [options["reaper_host"]], str(t.cast(t.Any, C).DEFAULT_TRANSPORT)
            (remote,) = connections.open_remotes(self._task, self._play_context, variables, names, default=usual)
            sender = ledger_replica.replica_sender(remote, options["cluster"], options["reaper_state"])
            context = dataclasses.replace(context, replica=sender)
        else:
            node_pool_present.require_persistent_state(options, variables)
        return node_pool_present.ensure_present(options, context)
