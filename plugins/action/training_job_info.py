# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job_info module; its documentation is in plugins/modules/training_job_info.py."""

from __future__ import annotations

import typing as t

from ..module_utils._model.errors import MusterError
from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.shared.state_dir import StateHome
from ..plugin_utils._workflows.training_job_info import logs, read


class ActionModule(WorkflowAction):
    """Runs in process on the controller."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "run_id": {"type": "str"},
        "live": {"type": "bool", "default": False},
        "logs": {"type": "int"},
        "ranks": {"type": "bool", "default": False},
        "follow": {"type": "bool", "default": False},
        "show": {"type": "bool", "default": False},
        "rank": {"type": "int"},
        "grep": {"type": "str"},
        "limit": {"type": "int"},
        "query": {"type": "str"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        home = StateHome(options["state_home"], options["cluster"])
        run_id, connect, hostvars = options["run_id"], self.connect(variables), variables["hostvars"]
        # Without writing, nothing is fetched either.
        source = read.LiveSource(
            connect, hostvars, None if self.check else hostvars, self._cluster_reader(options), self.reporter()
        )
        if options["logs"] is not None:
            view = logs.build_view(options["logs"], options["rank"], options["grep"])
            if options["follow"] and not self.check:
                return logs.follow_logs(home, run_id, view, source, self.reporter().say)
            found = logs.read_logs(home, run_id, view, options["ranks"], source)
            if options["show"]:
                logs.say_logs(found, self.reporter().say)
            return found
        live = source if options["live"] else None
        return read.read_runs(home, run_id, live, options["limit"], options["query"], is_check=self.check)

    def _cluster_reader(self, options: dict[str, t.Any]) -> read.ReadCluster:
        """Return the function that reads the state of a run in pods; its modules are loaded at the first call."""

        def read_cluster(record: t.Mapping[str, t.Any]) -> dict[str, object]:
            from ..plugin_utils._workflows.node_pool import run_status_kubernetes
            from ..plugin_utils._workflows.shared import kube_connection

            ref = record.get("backend_ref") or {}
            try:
                client = kube_connection.open_client(options, self.base, context=ref.get("context"))
            except MusterError as error:
                return {"phase": "unknown", "detail": f"the cluster is not reachable: {error}"}
            return run_status_kubernetes.describe_run(client, str(record["run_id"]), ref)

        return read_cluster
