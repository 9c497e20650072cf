# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the service_binding_info module; its documentation is in plugins/modules/."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.services import bind


class ActionModule(WorkflowAction):
    """Reads the state home on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "name": {"type": "str"},
        "services": {"type": "raw"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return bind.list_all(options)
