# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the diagnose_logs module; its documentation is in plugins/modules/diagnose_logs.py."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..plugin_utils._ansible import errors as error_boundary
    from ..plugin_utils._workflows.diagnose.logs import diagnose_folder

_OPTIONS: dict[str, dict[str, t.Any]] = {
    "path": {"type": "path", "required": True},
    "dest": {"type": "path"},
}


class ActionModule(ActionBase):
    """Runs in process on the controller."""

    _supports_check_mode = True
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        super().run(tmp, task_vars)
        _unused, options = self.validate_argument_spec(_OPTIONS)
        check = bool(self._task.check_mode)
        return error_boundary.run(lambda: diagnose_folder(options["path"], options["dest"], check=check))
