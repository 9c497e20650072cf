# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job_info module; its documentation is in plugins/modules/training_job_info.py."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ..plugin_utils._run import boundary, connections, history
from ..plugin_utils._run.state_home import StateHome

_OPTIONS: dict[str, dict[str, t.Any]] = {
    "run_id": {"type": "str"},
    "live": {"type": "bool", "default": False},
    "logs": {"type": "int"},
    "ranks": {"type": "bool", "default": False},
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
        variables = task_vars or {}
        _, options = self.validate_argument_spec(_OPTIONS)

        def connect(names: t.Sequence[str]) -> list[t.Any]:
            return connections.remotes(self._task, self._play_context, variables, names)

        def work() -> dict[str, t.Any]:
            home = StateHome(options["state_home"], options["cluster"])
            known = variables["hostvars"]
            if options["logs"] is not None:
                return history.logs(home, options["run_id"] or None, options["logs"], options["ranks"], connect, known)
            return history.info(home, options["run_id"] or None, connect if options["live"] else None, known)

        return boundary.run(work)
