# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the local_nodes module; its documentation is in plugins/modules/local_nodes.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..plugin_utils._ansible.base import Face
    from ..plugin_utils._workflows import local_nodes


class ActionModule(Face):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "count": {"type": "int", "default": 2},
        "path": {"type": "path"},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        if options["state"] == "absent":
            return local_nodes.stop_local_nodes(options["path"], self.check)
        return local_nodes.start_local_nodes(options["path"], options["count"], self.check)
