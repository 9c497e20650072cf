# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job_info module; its documentation is in plugins/modules/training_job_info.py."""

from __future__ import annotations

import typing as t

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..module_utils._model.errors import MusterError
    from ..plugin_utils._ansible.base import STATE_HOME, Face
    from ..plugin_utils._workflows import training_job_info
    from ..plugin_utils._workflows.shared.state_dir import StateHome


class ActionModule(Face):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "run_id": {"type": "str"},
        "live": {"type": "bool", "default": False},
        "logs": {"type": "int"},
        "ranks": {"type": "bool", "default": False},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result documented in the module."""
        home = StateHome(options["state_home"], options["cluster"])
        connect, known = self.connect(variables), variables["hostvars"]
        if options["logs"] is not None:
            return training_job_info.read_logs(
                home, options["run_id"], options["logs"], options["ranks"], connect, known
            )
        asked = connect if options["live"] else None
        return training_job_info.read_runs(
            home, options["run_id"], asked, known, None if self.check else known, self._asking(options)
        )

    def _asking(self, options: dict[str, t.Any]) -> training_job_info.ReadCluster:
        """Return who asks the cluster of a run in pods; the modules that it takes are loaded when there is one."""

        def ask(record: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
            with bytecode.kept():
                from ..plugin_utils._workflows.node_pool import run_status_kubernetes
                from ..plugin_utils._workflows.shared import kube_connection
            ref = record.get("backend_ref") or {}
            try:
                client = kube_connection.open_client(options, self.base, context=ref.get("context"))
            except MusterError as error:
                return {"phase": "unknown", "detail": f"the cluster cannot be asked: {error}"}
            return run_status_kubernetes.told(client, str(record["run_id"]), ref)

        return ask
