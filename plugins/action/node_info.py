# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_info module; its documentation is in plugins/modules/node_info.py."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ..plugin_utils._run import boundary, connections, node_info

_OPTIONS: dict[str, dict[str, t.Any]] = {
    "python": {"type": "str", "default": "python3"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "facts": {"type": "bool", "default": True},
}


class ActionModule(ActionBase):
    """Sends one request over the host's connection; the node needs Python and nothing else."""

    _supports_check_mode = True
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        _, options = self.validate_argument_spec(_OPTIONS)

        def work() -> dict[str, t.Any]:
            host = str(variables["inventory_hostname"])
            remote = connections.remotes(self._task, self._play_context, variables, [host])[0]
            return node_info.gather(remote, options["python"], options["packages"], options["facts"])

        return boundary.run(work)
