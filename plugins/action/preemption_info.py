# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the preemption_info module; its documentation is in plugins/modules/preemption_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model import validators
from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows import preemption_info


class ActionModule(WorkflowAction):
    """Asks all hosts at once over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "named": {"type": "list", "elements": "str", "default": []},
        "wait_s": {"type": "int", "default": 0},
        "interval_s": {"type": "int", "default": 5},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        wait_s = validators.integer(0)(options["wait_s"], "wait_s")
        interval_s = validators.integer(1)(options["interval_s"], "interval_s")
        remotes = self.connect(variables)(options["hosts"]) if options["hosts"] else []
        return preemption_info.find_notices(remotes, options["named"], wait_s, interval_s)
