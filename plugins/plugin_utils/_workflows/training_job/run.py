# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry of ``training_job``: what is to be done, and on which backend.

A backend is imported only when a job uses it: the Kubernetes one takes a tenth of a second.
"""

from __future__ import annotations

import time
import typing as t

from ....module_utils._model import job_backends, stop_on
from ....module_utils._model.errors import InputError, RefusedError
from ..shared.request import Dict, Result, RunRequest
from ..shared.state_dir import StateHome, load_record
from .filesystems import bound_mounts
from .job_secrets import leases as secret_leases
from .load import load_job
from .outcome import require_trained

__all__ = ["RunRequest", "run"]


def run(request: RunRequest) -> Dict:
    """Bring the job to its asked state and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    announce_end = _plan_notification(request)
    try:
        if request.options["state"] == "cancelled":
            # First: nothing that the controller lacks is to keep a run from being stopped.
            done = _cancel(request, home)
            if not request.check:
                secret_leases.end_due(request, home)
            return t.cast(Dict, done)
        if not request.check:
            secret_leases.end_due(request, home)
        return t.cast(Dict, announce_end(_start_or_follow(request, home)))
    except OSError as exc:
        problem = f"the state home {home.root} cannot be used: {exc.strerror or exc}"
        raise RefusedError(problem, "Set muster_state.path to a writable folder on a disk with free space") from exc


def _plan_notification(request: RunRequest) -> t.Callable[[Result], Result]:
    """Return what sends word of a run's end and returns its result, with warnings of what failed."""
    if not request.options.get("notify"):
        return lambda result: result
    # Late: most runs notify no one, and need not wait for the clients of web and mail.
    from . import notify

    target, began = notify.check_target(request.options["notify"]), time.time()
    return lambda result: notify.add_notification(target, result, began)


def _start_or_follow(request: RunRequest, home: StateHome) -> Result:
    job = bound_mounts.resolve(home, load_job(request, home))
    stop_on.require_follower(job, bool(request.options["wait"]))
    if job.on_kubernetes:
        job_backends.require_follower(job, bool(request.options["wait"]))
        if (request.options.get("drill") or {}).get("target") == "cut":
            raise InputError("drill.target", "cut is for plain hosts", "In pods, use agent or host")
        from .kubernetes import run as kubernetes_run

        return require_trained(kubernetes_run.run(request, home, job))
    from .hosts import run as hosts_run

    return require_trained(hosts_run.run(request, home, job))


def _cancel(request: RunRequest, home: StateHome) -> Result:
    run_id = str(request.options.get("run_id") or "")
    if not run_id:
        raise InputError("run_id", "is required to cancel", "Set muster_run_id; the status playbook lists the runs")
    record = load_record(home.run_folder(run_id))
    if record is None:
        raise RefusedError(f"run {run_id} does not exist in {home.folder}", "List the runs with the status playbook")
    if record.backend == "kubernetes":
        from .kubernetes.ending import cancel as kubernetes_cancel

        return kubernetes_cancel.cancel(request, home, record)
    from .hosts import run as hosts_run

    return hosts_run.cancel(request, home, record)
