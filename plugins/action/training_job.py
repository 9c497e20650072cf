# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job module; its documentation is in plugins/modules/training_job.py."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils._run import boundary, connections, progress, training_job

_OPTIONS: dict[str, dict[str, t.Any]] = {
    "job": {"type": "dict"},
    "run_id": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "cancelled"], "default": "present"},
    "hosts": {"type": "list", "elements": "str"},
    "cluster": {"type": "str", "default": "default"},
    "state_home": {"type": "dict", "default": {}},
    "template_paths": {"type": "list", "elements": "path", "default": []},
    "wait": {"type": "bool", "default": True},
    "take_over": {"type": "bool", "default": False},
    "drill": {"type": "dict"},
}


class ActionModule(ActionBase):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    _supports_check_mode = True
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        _, options = self.validate_argument_spec(
            _OPTIONS,
            required_one_of=[["job", "run_id"]],
            required_if=[["state", "cancelled", ["run_id"]]],
        )
        request = training_job.Request(
            options=options,
            hosts=options["hosts"] or list(variables["ansible_play_hosts_all"]),
            hostvars=variables["hostvars"],
            base=pathlib.Path(self._loader.get_basedir()),
            check=bool(self._task.check_mode),
            connect=lambda names: connections.remotes(self._task, self._play_context, variables, names),
            progress=progress.Reporter(Display().display),
        )
        return boundary.run(lambda: training_job.run(request))
