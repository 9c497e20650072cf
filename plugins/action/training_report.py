# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_report module; its documentation is in plugins/modules/training_report.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import training_report
from ..plugin_utils._workflows.shared.state_dir import StateHome


class ActionModule(WorkflowAction):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "run_id": {"type": "str"},
        "compare": {"type": "list", "elements": "str", "default": []},
        "all": {"type": "bool", "default": False},
        "limit": {"type": "int", "default": 200},
        "path": {"type": "path"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        home = StateHome(options["state_home"], options["cluster"])
        if options["all"]:
            others = [name for name in ("run_id", "compare") if options[name]]
            return training_report.write_run_overview(home, others, options["limit"], options["path"], self.check)
        return training_report.write_run_report(
            home, options["run_id"], options["compare"], options["path"], self.check
        )
