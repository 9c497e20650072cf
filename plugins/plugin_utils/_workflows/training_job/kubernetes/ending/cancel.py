# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cancelling a run on Kubernetes: its object and its pods are deleted, and only then its record says that it
has ended.
"""

from __future__ import annotations

import pathlib
import time

from ......module_utils._model import commands
from ......module_utils._model.errors import MusterError, RefusedError
from ......module_utils._model.run_record import BackendRef, RunRecord
from ......module_utils._node import files
from ....._kube.api.client import Client
from ....._kube.api.errors import KubeError
from ....._kube.jobs.spec import gang_selector
from ....._kube.nodes.lost_pods import describe_pods
from ....shared import cluster_identity, kube_connection
from ....shared.request import Result, RunRequest
from ....shared.run_record import read_grace_s
from ....shared.state_dir import StateHome
from ...outcome import build_cancel_result, build_uncancelled_result, record_cancelled
from .. import leader_lease, lease_guard
from ..delete import DELETION_S, delete_run, mark_cancelled
from .last_lines import is_over


def cancel(request: RunRequest, home: StateHome, record: RunRecord) -> Result:
    """Remove what runs the job and wait until its pods are gone, so that nothing of it writes any more."""
    run_id, ref = record.run_id, record.backend_ref
    folder = home.run_folder(run_id)
    context = ref.context if ref else None
    if request.options.get("cluster_gone"):
        return _record_gone(request, record, folder, context)
    client = kube_connection.open_client(request.options, request.base, request.progress.say, context=context)
    if request.check:
        return _check(request, client, record)
    existed, other = False, ""
    try:
        if not request.options.get("cluster_id"):
            cluster_identity.require_same_cluster(client, record.to_dict())
        if ref:
            if not record.is_ended:
                other = _note_other(request, client, ref, home, folder)
                mark_cancelled(client, ref, home.owner(create=True)["controller"])
            within_s = read_grace_s(record.job) + DELETION_S
            existed = delete_run(client, ref, run_id, within_s, request.progress)
            leader_lease.delete_expired(client, ref.namespace)
    except RefusedError:
        # It is another cluster, or there is no such run.
        raise
    except MusterError as error:
        left = _find_left(client, ref, run_id) if ref else "it never had an object"
        again = commands.run_command(record, "cancel", **commands.name_run(run_id, request.options["cluster"]))
        done = build_uncancelled_result(record, folder, left, error, again)
    else:
        done = _record_cancelled(request, record, folder, existed, other)
    # Rented machines of a run that is to end must not wait for what stands in the way of its pods.
    outcome = str(record.outcome) if record.is_ended else "cancelled"
    return lease_guard.delete_after_end(request, home, record, lambda: client, done, outcome)


def _check(request: RunRequest, client: Client, record: RunRecord) -> Result:
    """Say what a cancel would stop, and change nothing."""
    if not request.options.get("cluster_id"):
        cluster_identity.require_same_cluster(client, record.to_dict())
    left = _find_left(client, record.backend_ref, record.run_id) if record.backend_ref else "it never had an object"
    said = f"had ended already ({record.outcome})" if record.is_ended else "would be stopped"
    request.progress.say(f"run {record.run_id} {said}: {left}; nothing was changed")
    return {"changed": not record.is_ended, "run_id": record.run_id}


def _note_other(request: RunRequest, client: Client, ref: BackendRef, home: StateHome, folder: pathlib.Path) -> str:
    """Return the other controller that followed the run last, empty where there is none; keep and say that.

    What the run did since is in that one's record alone.
    """
    other, _renews = leader_lease.find_other(client, ref.name, ref.namespace, home)
    if other:
        files.append_json(folder / "events.jsonl", {"at": time.time(), "kind": "taken_over", "detail": other})
        request.progress.say(
            f"{other} has taken the run over: what it did since is in the record there, and not in this one"
        )
    return other


def _record_cancelled(
    request: RunRequest, record: RunRecord, folder: pathlib.Path, existed: bool, other: str
) -> Result:
    """Record and say that a run is stopped, whose object ``existed`` until now or not.

    :param other: the controller that followed it last, where that is another one.
    """
    ended, changed = record_cancelled(folder, record, request.progress)
    if record.is_ended:
        said = f"run {record.run_id} had ended already ({record.outcome}); nothing of it runs any more"
        request.progress.say(said)
    elif changed:
        where = f"namespace {record.backend_ref.namespace}" if record.backend_ref else ""
        request.progress.say(commands.describe_cancelled(ended, where, other=other))
    return build_cancel_result(ended, folder, changed=existed or changed)


def _record_gone(request: RunRequest, record: RunRecord, folder: pathlib.Path, context: str | None) -> Result:
    """Record the end of a run whose cluster no longer exists; one that answers, and be it with a refusal, exists."""
    try:
        client = kube_connection.open_client(request.options, request.base, request.progress.say, context=context)
        client.cluster_id()
    except MusterError as error:
        exists = isinstance(error, KubeError)
    else:
        exists = True
    if exists:
        fix = "Cancel the run without muster_cluster_gone"
        raise RefusedError(f"run {record.run_id}: a cluster answers at {client.server}", fix)
    if request.check:
        return {"changed": not record.is_ended, "run_id": record.run_id}
    ended, changed = record_cancelled(folder, record, request.progress)
    if changed:
        said = f"run {record.run_id} is recorded as cancelled: nothing of its cluster answers, and nothing was stopped"
        request.progress.say(said)
    return build_cancel_result(ended, folder, changed=changed)


def _find_left(client: Client, ref: BackendRef, run_id: str) -> str:
    """Return what of a run there still is, one line."""
    try:
        live = client.get(ref.kind_name, ref.name, ref.namespace)
        pods = client.list("v1/Pod", ref.namespace, labels=gang_selector(run_id)).items
    except MusterError as error:
        what = "it is not known what of it still runs: its cluster could not be asked which of its pods still run"
        # A cluster that answers, and be it with a refusal, exists.
        gone = "if that cluster no longer exists, add -e muster_cluster_gone=true"
        said = f"{what} ({error.message})"
        return said if isinstance(error, KubeError) else f"{said}; {gone}"
    there = live is not None and (not ref.uid or live["metadata"].get("uid") == ref.uid)
    parts = [f"{ref.kind} {ref.namespace}/{ref.name}"] if there else []
    parts += filter(None, [describe_pods([pod for pod in pods if not is_over(pod)])])
    return f"there still are {' and '.join(parts)}" if parts else "nothing of it is left"
