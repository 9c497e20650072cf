# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating a run's objects, and comparing an object that exists with the run that was requested."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import typing as t

from .....module_utils._model.errors import InputError, MusterError, RefusedError
from .....module_utils._model.job import Job
from .....module_utils._model.run_record import BackendRef, RunRecord
from .....module_utils._node import files
from ...._kube.api.client import Client
from ...._kube.api.errors import KubeError
from ...._kube.api.kinds import KubeObject, ObjectMeta
from ...._kube.jobs.spec import (
    DIGEST,
    RUN_LABEL,
    KubePlan,
    label_value,
    selector,
    set_owner,
)
from ...._kube.objects.apply import apply
from ...._kube.objects.external_secrets import KIND
from ...._kube.objects.secrets import build_secret
from ...shared import run_record
from ...shared.progress import Progress
from ...shared.state_dir import StateHome
from .. import changes
from .. import source as code_source
from ..job_secrets import external_secrets
from ..job_secrets import values as secrets
from ..object_stores import pod_store
from . import network_preflight
from . import plan as kubernetes_plan
from .delete import delete_secret

# The supporting objects of a run, in its folder.
_OBJECTS = "objects.json"


def find_live(client: Client, reference: BackendRef) -> KubeObject | None:
    """Return the object of a record's ``backend_ref``, None when it, or its kind, is not there."""
    try:
        return client.get(reference.kind_name, reference.name, reference.namespace)
    except InputError:
        # The cluster does not serve it any more.
        return None


def find_recorded(client: Client, before: RunRecord, namespace: str) -> KubeObject | None:
    """Return the object that runs a recorded run, None when it is not there.

    :param namespace: that of the job, which may be another one than it is recorded in.
    :raises RefusedError: naming both, where it may not be read.
    """
    reference = t.cast(BackendRef, before.backend_ref)
    try:
        return find_live(client, reference)
    except KubeError as exc:
        if exc.status != 403 or reference.namespace == namespace:
            raise
        recorded = f"run {before.run_id} is recorded in namespace {reference.namespace}"
        fix = "Name another run_id, or use a kubeconfig of that namespace"
        problem = f"{recorded}, which this kubeconfig may not read, and the job asks for {namespace}"
        raise RefusedError(problem, fix) from exc


def build_reference(live: KubeObject, plan: KubePlan, context: str | None) -> BackendRef:
    """Return where the object that runs a job is; ``context`` is the kubeconfig's, None for the job's."""
    meta = live["metadata"]
    return BackendRef(
        live["apiVersion"],
        live["kind"],
        meta["name"],
        meta.get("namespace") or plan.namespace,
        uid=meta.get("uid"),
        context=context or plan.job.placement.cluster,
    )


def restore_record(folder: pathlib.Path, before: RunRecord | None) -> None:
    """Put the record back as it was before a submit of which nothing is left."""
    if before is None:
        (folder / "run.json").unlink(missing_ok=True)
    else:
        run_record.write_record(folder, before)


def dry_run(client: Client, plan: KubePlan, live: KubeObject | None) -> None:
    """Let the server judge the run's objects without making any; ``live`` is what would go away first."""
    *supporting, main = kubernetes_plan.build_objects(plan)
    if live is not None:
        # Laid over what is there it would be refused: parts of a job cannot be changed.
        meta = main["metadata"]
        main = {**main, "metadata": {**meta, "name": f"{meta['name'][:-2]}-x"}}
    apply(client, [*supporting, main], check=True)


def submit(
    client: Client, plan: KubePlan, values: secrets.JobSecrets, digest: str
) -> tuple[KubeObject, list[KubeObject]]:
    """Make the run's objects, the one that runs it last, and return that one and the others.

    What was made goes away again when that fails.

    :param values: the job's secrets.
    :param digest: of the job and its code, by which another controller knows it again.
    """
    *supporting, main = kubernetes_plan.build_objects(plan)
    meta = main["metadata"]
    main = {**main, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), DIGEST: digest}}}
    supporting += build_run_secrets(plan, values)
    # All objects are checked by a dry run before any is created; objects that existed before are kept in any case.
    judged = apply(client, [*supporting, main], check=True)
    created = [change.after for change in judged.changes if change.action == "created" and change.after]
    # This one is there already, for the pods of the network test.
    created += build_pull_secret(plan, values)
    try:
        apply(client, supporting)
        external_secrets.wait_ready(client, plan)
        return t.cast(KubeObject, apply(client, [main]).objects()[0]), supporting
    except BaseException:
        # Whatever ended it, and be it the user: half of a run is none.
        network_preflight.delete_objects(client, created)
        raise


def build_run_secrets(plan: KubePlan, values: secrets.JobSecrets) -> list[KubeObject]:
    """Return the Secrets of a run: that of its ranks, where the job has values of its own, and that for registries."""
    content = kubernetes_plan.secret_data(plan, values.values)
    if content is None:
        return build_pull_secret(plan, values)
    data = {name: base64.b64encode(value).decode() for name, value in content.items()}
    meta: ObjectMeta = {"name": str(plan.secret), "namespace": plan.namespace, "labels": plan.labels}
    return [build_secret(meta, "Opaque", {}, data), *build_pull_secret(plan, values)]


def build_pull_secret(plan: KubePlan, values: secrets.JobSecrets) -> list[KubeObject]:
    """Return the Secret with which the kubelet pulls a job's images, or nothing."""
    if plan.pull_secret is None:
        return []
    entries: dict[str, t.Any] = {}
    for config in values.registries.values():
        entries.update(json.loads(config)["auths"])
    data = base64.b64encode(json.dumps({"auths": entries}).encode()).decode()
    meta: ObjectMeta = {"name": plan.pull_secret, "namespace": plan.namespace, "labels": plan.labels}
    return [build_secret(meta, "kubernetes.io/dockerconfigjson", {}, {".dockerconfigjson": data})]


def test_network(
    client: Client,
    plan: KubePlan,
    values: secrets.JobSecrets,
    home: StateHome,
    progress: Progress,
    decision: kubernetes_plan.ClusterDecision,
) -> None:
    """Run the network test; the kubelet pulls the image of its pods with the run's own credentials, too."""
    pull = build_pull_secret(plan, values)
    try:
        if pull:
            apply(client, pull)
        network_preflight.run_preflight(
            client, plan, home, progress, decision.placement.node_uids, decision.facts.policies
        )
    except BaseException:
        delete_secret(client, plan, plan.pull_secret, progress)
        raise


def add_store(
    client: Client, plan: KubePlan, values: secrets.JobSecrets, store: pod_store.PodStore | None, progress: Progress
) -> secrets.JobSecrets:
    """Return the values of the run's Secret with what its pods need of object stores."""
    if store is None:
        return values
    visits = pod_store.visits_for(client, plan.job, plan.namespace, plan.pull_secrets, plan.image)
    try:
        return dataclasses.replace(values, files={**values.files, **store.values(visits, progress)})
    except BaseException:
        # It is there since the network test.
        delete_secret(client, plan, plan.pull_secret, progress)
        raise


def set_owners(client: Client, supporting: t.Iterable[KubeObject], live: KubeObject) -> None:
    """Have what was just made go when the run goes; what the end of an earlier one took meanwhile is made again."""
    apply(client, set_owner(supporting, live))


def repair_owners(client: Client, plan: KubePlan, live: KubeObject, *, known: bool) -> None:
    """Set the owner of a running run's supporting objects: their controller may have been killed before it did.

    :param known: whether it was said already, but for the Secrets, of which one is sure each time.
    """
    objects = [client.get("v1/Secret", name, plan.namespace) for name in (plan.secret, plan.pull_secret) if name]
    if not known:
        for kind in (*plan.supporting_kinds, *([KIND] if plan.external_secret else [])):
            objects += _list_supporting(client, kind, plan)
    (owned,) = set_owner([{"metadata": {}}], live)
    for item in objects:
        owners = [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()] if item else []
        if item is not None and live["metadata"]["uid"] not in owners:
            client.patch(item, item["metadata"]["name"], owned, plan.namespace)


def _list_supporting(client: Client, kind: str, plan: KubePlan) -> list[KubeObject]:
    try:
        items = client.list(kind, plan.namespace, labels=selector(plan.run_id)).items
    except KubeError as error:
        if not error.is_forbidden:
            raise
        return []
    version, _unused, name = kind.rpartition("/")
    # Lists leave out what all of their items are.
    return [{**item, "apiVersion": version, "kind": name} for item in items]


class SupportingObjects:
    """The run's supporting objects as they were created, from which deleted ones are created again.

    They are kept in the run's folder, but for the Secrets, whose values are resolved at each call.
    """

    def __init__(self, client: Client, plan: KubePlan, folder: pathlib.Path, run_secrets: list[KubeObject]) -> None:
        self._client, self._made, self._place, self._secrets = client, plan, folder / _OBJECTS, run_secrets

    def keep(self, supporting: t.Iterable[KubeObject]) -> None:
        """Keep what was just made."""
        files.write_json(self._place, [item for item in supporting if item["kind"] != "Secret"])

    def restore(self, live: KubeObject, progress: Progress) -> None:
        """Create deleted ones again; report those that cannot be created.

        :param live: the object that runs the job, which owns them.
        """
        kept = files.read_json(self._place)
        try:
            if not isinstance(kept, list):
                # Another controller has made them.
                kinds = self._made.supporting_kinds
                kept = [_without_server_fields(item) for kind in kinds for item in self._list(kind)]
                self.keep(kept)
            for item in [*kept, *self._secrets]:
                meta = item["metadata"]
                if self._client.get(item, meta["name"], meta["namespace"]) is None:
                    apply(self._client, set_owner([item], live))
                    progress.say(f"{item['kind']} {meta['name']} of the run was deleted: it was created again")
        except MusterError as error:
            progress.say(f"warning: the run's supporting objects could not be checked: {error}")

    def _list(self, kind: str) -> list[KubeObject]:
        found = _list_supporting(self._client, kind, self._made)
        # What an engine makes by itself it makes again by itself.
        return [item for item in found if not any(owner.get("controller") for owner in _owners(item))]


def _owners(item: KubeObject) -> list[dict[str, t.Any]]:
    return item["metadata"].get("ownerReferences") or []


def _without_server_fields(item: KubeObject) -> KubeObject:
    meta = {key: value for key, value in item["metadata"].items() if key in ("name", "namespace", "labels")}
    content = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    return t.cast(KubeObject, {**content, "metadata": meta})


def is_run(live: KubeObject, run_id: str) -> bool:
    """Return whether an object is one of this run."""
    return bool((live["metadata"].get("labels") or {}).get(RUN_LABEL) == label_value(run_id))


def require_recorded_end(run_id: str, before: RunRecord | None, live: KubeObject | None, recreate: bool) -> None:
    """Refuse to start a run again whose object no longer exists and whose end was not recorded: it may have succeeded.

    It was deleted, by its time to live or by a user, while it was not followed.
    """
    if live is not None or before is None or before.is_ended or recreate:
        return
    reference = before.backend_ref
    if reference and reference.uid:
        gone = f"{reference.kind} {reference.name} of run {run_id} no longer exists, and its result was not recorded"
        again = "start it again with recreate: true (muster_recreate)"
        fix = f"Check its checkpoints; then {again}, or cancel it to end its record"
        raise RefusedError(gone, fix)


def compare_job(
    live: KubeObject, run_id: str, before: RunRecord | None, job: Job, source: code_source.CodeSource
) -> RefusedError | None:
    """Return why a run that is running is not the requested one, None when it is.

    It names the options that differ with both values, where this controller knows them.
    """
    advice = (
        "Set recreate: true (muster_recreate) to stop it and start this one, or name another run_id (muster_run_id)"
    )
    if before is None:
        meta = live["metadata"]
        if not is_run(live, run_id):
            what = f"{live['kind']} {meta['name']} already exists and does not belong to run {run_id}"
            return RefusedError(what, "Name another run_id, or delete it")
        started = (meta.get("annotations") or {}).get(DIGEST)
        if started and started != code_source.job_digest(job, source):
            return RefusedError(
                f"run {run_id} was started by another controller with a different job or different code", advice
            )
        return None
    differs = changes.describe_changes(before, job, source.code_sha256)
    if not differs:
        return None
    return RefusedError(f"run {run_id} is already running with another job: {', '.join(differs)}", advice)
