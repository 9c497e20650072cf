# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the diagnose_run module; its documentation is in plugins/modules/diagnose_run.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.diagnose import run as diagnose_run
from ..plugin_utils._workflows.shared.state_dir import OWN_CLUSTER, StateHome


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "run_id": {"type": "str"},
        "attach": {"type": "bool", "default": False},
        "hosts": {"type": "list", "elements": "str"},
        "window_s": {"type": "float", "default": 1.0},
        "ras_s": {"type": "float", "default": 5.0},
        "dest": {"type": "path"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        "namespace": {"type": "str"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        request = diagnose_run.DiagnoseRequest(
            home=StateHome(options["state_home"], options["cluster"]),
            run_id=options["run_id"],
            attach=options["attach"],
            hosts=options["hosts"] or list(variables["ansible_play_hosts_all"]),
            hostvars=variables["hostvars"],
            connect=self.connect(variables),
            progress=self.reporter(),
            window_s=min(max(options["window_s"], 0.0), 60.0),
            ras_s=min(max(options["ras_s"], 0.0), 60.0),
            dest=options["dest"],
            check=self.check,
            base=self.base,
            cluster={key: options.get(key) for key in ("kubeconfig", "context", "namespace", OWN_CLUSTER)},
        )
        return diagnose_run.run(request)
