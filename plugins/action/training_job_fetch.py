# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the training_job_fetch module; its documentation is in plugins/modules/training_job_fetch.py."""

from __future__ import annotations

import pathlib
import typing as t

from ..module_utils._model.errors import InputError
from ..plugin_utils._ansible.base import STATE_HOME, WorkflowAction
from ..plugin_utils._workflows.shared.state_dir import StateHome
from ..plugin_utils._workflows.training_job_fetch import models, run


class ActionModule(WorkflowAction):
    """Runs in process on the controller and reaches the hosts over their own connections."""

    OPTIONS: t.ClassVar[dict[str, dict[str, t.Any]]] = {
        "run_id": {"type": "str"},
        "source": {"type": "str", "choices": ["checkpoints", "run", "bucket"], "default": "checkpoints"},
        "paths": {"type": "list", "elements": "str", "default": []},
        "model": {"type": "str"},
        "tracker": {"type": "str"},
        "dest": {"type": "path"},
        "kubeconfig": {"type": "raw"},
        "context": {"type": "str"},
        **STATE_HOME,
    }

    def work(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, object]:
        """Return the result documented in the module."""
        home = StateHome(options["state_home"], options["cluster"])
        dest = pathlib.Path(self.base, options["dest"]) if options["dest"] else None
        run_id, paths = options["run_id"], tuple(options["paths"])
        open_cluster = run.build_cluster_opener(options, self.base, self.reporter())
        if options["model"]:
            if run_id or paths:
                raise InputError("model", "goes without run_id and paths", "A version names its run and its checkpoint")
            found = models.find_model_files(home, options["model"], options["tracker"], open_cluster)
            self.reporter().say(f"{options['model']} is version {found.version}, of run {found.run_id}")
            run_id, paths = found.run_id, (found.pattern,)
        wanted = run.FetchRequest(run_id, options["source"], paths, dest, self.check)
        open_pods = run.build_pod_opener(options, self.base, self.reporter())
        nodes = run.Nodes(variables["hostvars"], self.connect(variables), open_pods, open_cluster)
        return run.fetch_files(home, wanted, nodes, self.reporter())
