# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files a registered model stands for: a run, and the checkpoint of it that was made a version."""

from __future__ import annotations

import glob
import typing as t

from ....module_utils._model import job_tracking
from ....module_utils._model.errors import InputError, RefusedError
from ..shared import bindings, credentials
from ..shared.state_dir import StateHome, load_record

if t.TYPE_CHECKING:
    from ....module_utils._model.binding import Binding

_OPTION: t.Final = "model"


class ModelFiles(t.NamedTuple):
    """The run of a version, and the shell pattern of its checkpoint below the folder of checkpoints."""

    run_id: str
    pattern: str
    version: str


def find_model_files(
    home: StateHome, model: str, tracker: str | None, open_cluster: credentials.OpenCluster
) -> ModelFiles:
    """Return what ``NAME`` or ``NAME@ALIAS`` stands for, by the tracker of the binding ``tracker``.

    :param tracker: None for the only binding of a tracker.
    :param open_cluster: the cluster that may have the tracker's credentials in a Secret.
    :raises InputError: when the tracker has no such model, or there is no such binding.
    :raises RefusedError: when the version is not one of a run of this controller, with where its bytes are.
    """
    name, alias = job_tracking.split_model(model, _OPTION)
    binding = _find_tracker(home, tracker)
    # Late: it needs the HTTP client.
    from ..._services.tracking.mlflow_runs import MlflowRuns

    runs = MlflowRuns(binding, credentials.read_tracker_keys(binding, "tracker", open_cluster))
    found = runs.find_model(name, alias, _OPTION)
    run_id, checkpoint = (found["tags"].get(f"muster.{key}", "") for key in ("run_id", "checkpoint"))
    what = f"version {found['version']} of {name}"
    if not run_id or not checkpoint:
        problem = f"{what} was not registered by a run of this collection"
        raise RefusedError(problem, f"Copy {found['source'] or 'it'} with a client of its own")
    if load_record(home.run_folder(run_id)) is None:
        problem = f"{what} is of run {run_id}, which this controller does not know"
        raise RefusedError(problem, f"Fetch it where the run was started, or copy {found['source']}")
    return ModelFiles(run_id, glob.escape(checkpoint), found["version"])


def _find_tracker(home: StateHome, name: str | None) -> Binding:
    if name:
        found = bindings.load_binding(home, name, "tracker")
        if found.component != "tracking":
            raise InputError("tracker", f"'{name}' is a binding of {found.component}, not of tracking")
    else:
        known = [item for item in bindings.list_bindings(home) if item.component == "tracking"]
        if len(known) != 1:
            names = ", ".join(item.name for item in known)
            problem = f"there are several trackers: {names}" if known else "no tracker is bound"
            raise InputError("tracker", problem, "Name the binding of the model's tracker")
        (found,) = known
    if found.provider == "wandb":
        raise InputError("tracker", f"{found.name} is of Weights & Biases", "Models are fetched by name from MLflow")
    return found
