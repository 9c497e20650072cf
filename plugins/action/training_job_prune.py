# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job_prune module; its documentation is in plugins/modules/training_job_prune.py."""

from __future__ import annotations

import time
import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows import training_job_prune
from ..plugin_utils._workflows.shared.state_dir import StateHome


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    REQUIRES_KNOWN_VARIABLES: t.ClassVar[bool] = True
    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "keep": {"type": "int", "default": 20},
        "older_than_days": {"type": "float", "default": 0},
        "run_ids": {"type": "list", "elements": "str", "default": []},
        "controller": {"type": "bool", "default": False},
        "unfetched": {"type": "bool", "default": False},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        wanted = training_job_prune.PruneRequest(
            keep=options["keep"],
            older_than_days=options["older_than_days"],
            run_ids=tuple(options["run_ids"]),
            controller=options["controller"],
            unfetched=options["unfetched"],
            check=self.check,
        )
        home, hosts = StateHome(options["state_home"], options["cluster"]), list(variables["ansible_play_hosts_all"])
        return training_job_prune.prune_runs(home, hosts, self.connect(variables), wanted, time.time())
