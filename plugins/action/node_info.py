# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the node_info module; its documentation is in plugins/modules/node_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..plugin_utils._ansible.base import Face
    from ..plugin_utils._workflows import node_info


class ActionModule(Face):
    """Sends one request over the host's connection; the node needs Python and nothing else."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "python": {"type": "str", "default": "python3"},
        "packages": {"type": "list", "elements": "str", "default": []},
        "facts": {"type": "bool", "default": True},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        remote = self.connect(variables)([str(variables["inventory_hostname"])])[0]
        return node_info.gather_node_info(remote, options["python"], options["packages"], options["facts"])
