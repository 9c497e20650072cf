# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_launch_info module; its documentation is in plugins/modules."""

from __future__ import annotations

import pathlib
import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.shared.state_dir import StateHome
from ..plugin_utils._workflows.training_template_info.make_launch import make_launch


class ActionModule(WorkflowAction):
    """Reads the record that the controller keeps."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "run_id": {"type": "str"},
        "path": {"type": "path", "default": "."},
        "url": {"type": "str"},
        "devcontainer": {"type": "path"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        home = StateHome(options["state_home"], options["cluster"])
        project = options["devcontainer"]
        return make_launch(
            home,
            options["run_id"],
            pathlib.Path(self.base, options["path"] or "."),
            options["url"],
            pathlib.Path(self.base, project) if project else None,
        )
