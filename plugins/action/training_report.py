# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_report module; its documentation is in plugins/modules/training_report.py."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ..plugin_utils._run import boundary, reporting
from ..plugin_utils._run.state_home import StateHome

_OPTIONS: dict[str, dict[str, t.Any]] = {
    "run_id": {"type": "str"},
    "compare": {"type": "list", "elements": "str", "default": []},
    "path": {"type": "path"},
    "cluster": {"type": "str", "default": "default"},
    "state_home": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    """Runs in process on the controller."""

    _supports_check_mode = True
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(_OPTIONS)

        def work() -> dict[str, t.Any]:
            home = StateHome(options["state_home"], options["cluster"])
            check = bool(self._task.check_mode)
            return reporting.report(home, options["run_id"] or None, options["compare"], options["path"] or None, check)

        return boundary.run(work)
