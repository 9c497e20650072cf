# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the usage_info module; its documentation is in plugins/modules/usage_info.py."""

from __future__ import annotations

import time
import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import usage_info
from ..plugin_utils._workflows.shared.state_dir import StateHome


class ActionModule(WorkflowAction):
    """Reads what the controller keeps."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "by": {"type": "list", "elements": "str", "default": ["month", "user", "team", "job"]},
        "since": {"type": "str"},
        "before": {"type": "str"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        home = StateHome(options["state_home"], options["cluster"])
        return usage_info.read_usage(home, options["by"], options["since"], options["before"], time.time())
