# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``job.tracking``: the variables by which a program finds the tracker of its job, on hosts as in pods."""

from __future__ import annotations

import dataclasses

from .....module_utils._model.binding import Binding
from .....module_utils._model.errors import InputError
from .....module_utils._model.job import Job
from ...._services.tracking import trackers
from ...shared import bindings, credentials
from ...shared.state_dir import StateHome
from ..object_stores.job_nodes import JobNodes

_OPTION = "job.tracking.binding"
CA_FILE = "tracking-ca.pem"


@dataclasses.dataclass(frozen=True)
class BoundTracking:
    """The tracker of a job. ``plain`` are variables without a secret, ``hidden`` the others, made of ``keys``.

    ``logs``: the controller logs the steps of the run there itself. ``stored_at``: see ``StepLog``.
    """

    binding: Binding
    plain: dict[str, str]
    hidden: dict[str, str] = dataclasses.field(repr=False)
    job: Job
    keys: dict[str, str] = dataclasses.field(repr=False)
    stored_at: str = ""

    @property
    def experiment(self) -> str:
        """The experiment or project there."""
        return experiment_of(self.job)

    @property
    def logs(self) -> bool:
        """Whether the controller logs the run's steps."""
        return self.job.tracking is not None and self.job.tracking.log

    @property
    def ca_variable(self) -> str:
        """The variable that names the file of its own CA, empty where it has none."""
        return trackers.tracker_of(self.binding).ca_variable if self.binding.ca else ""


def open_bound(home: StateHome, job: Job, nodes: JobNodes, run_id: str) -> BoundTracking | None:
    """Return the tracker that a job names, None for a job without one.

    :raises InputError: when the binding does not exist, is none of a tracker, or its credentials are not there.
    :raises RefusedError: when a node of the job cannot reach it, with the matrix.
    """
    if job.tracking is None:
        return None
    binding = bindings.load_binding(home, job.tracking.binding, _OPTION)
    if binding.component != "tracking":
        raise InputError(_OPTION, f"'{binding.name}' is a binding of {binding.component}, not of tracking")
    nodes.require_reachable(binding, _OPTION)
    tracker = trackers.tracker_of(binding)
    keys = credentials.read_tracker_keys(binding, _OPTION, nodes.open_cluster)
    hidden = {tracker.names[name]: value for name, value in keys.items()}
    experiment = experiment_of(job)
    if job.tracking.log and binding.provider == "wandb":
        fix = "Leave it out; the program logs with W&B's own client"
        raise InputError("job.tracking.log", "is for MLflow", fix)
    placed = tracker.place(binding.endpoint, experiment, run_id)
    stored_at = find_stored_address(home, job, run_id)
    return BoundTracking(binding, {**placed, **binding.env}, hidden, job, keys, stored_at)


def experiment_of(job: Job) -> str:
    """Return the experiment or project that a job's steps are logged to: the job's name where it names none."""
    return (job.tracking and job.tracking.experiment) or job.name


def find_stored_address(home: StateHome, job: Job, run_id: str) -> str:
    """Return the address below which a run's checkpoints are stored, where a model links to it; else nothing."""
    if job.tracking is None or not job.tracking.model or not job.checkpoints.binding:
        return ""
    from ..object_stores import checkpoint_binding

    return checkpoint_binding.stored_address(home, job, run_id)
