# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the k3s_image module; its documentation is in plugins/modules/k3s_image.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.k3s_image import run as k3s_image


class ActionModule(WorkflowAction):
    """Sends the archive over the host's connection, unless its image is there."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "name": {"type": "str", "required": True},
        "archive": {"type": "path", "required": True},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        (remote,) = self.connect(variables)([str(variables["inventory_hostname"])])
        return k3s_image.run(options, remote, self.base, self.check)
