# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the release_bundle module; its documentation is in plugins/modules/release_bundle.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import WorkflowAction
from ..plugin_utils._workflows.release_bundle import run as release_bundle


class ActionModule(WorkflowAction):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "path": {"type": "path", "required": True},
        "architectures": {"type": "list", "elements": "str", "choices": ["amd64", "arm64"], "default": ["amd64"]},
        "versions": {"type": "dict", "default": {}},
        "images": {"type": "list", "elements": "str", "default": []},
        "controller_images": {"type": "bool", "default": True},
        "mirror": {"type": "str"},
        "lock_file": {"type": "path"},
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        return release_bundle.run(options, variables.get("ansible_inventory_sources") or [], self.base, self.check)
