# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reaches the checkpoints of a run in pods: a short Job has a pod with their mount, if any, that runs the node agent.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
import typing as t

from ....module_utils._model import job_backends
from ....module_utils._model.errors import MusterError, RefusedError
from ....module_utils._model.job import Job
from ....module_utils._model.run_record import RunRecord
from ..._hosts.node_client import NodeClient
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject, ObjectMeta, title
from ..._kube.api.pod_exec import Container, exec_in_pod
from ..._kube.jobs import file_reader_job
from ..._kube.jobs.file_reader_job import ReaderImage
from ..._kube.jobs.spec import CONTAINER, set_owner
from ..._kube.objects import events
from ..._kube.objects.secrets import build_secret
from ..shared.progress import Progress

if t.TYPE_CHECKING:
    from ..training_job.image_pin import JobImage

_LIMIT_S: t.Final = 300.0
# The agent computes checksums of whole checkpoints before it answers.
_SILENCE_S: t.Final = 600.0


@contextlib.contextmanager
def open_readers(
    client: Client, record: RunRecord, job: Job, progress: Progress, bound: JobImage | None = None
) -> t.Iterator[list[NodeClient]]:
    """Return nodes that see the run's checkpoints: any one, or each of its own where they are on the nodes' disks.

    Of checkpoints in a bucket alone, the node is one that reaches what pods reach.
    :param bound: the image of the job where its registry is bound: the Secret that the run had of it went with the run.
    :raises RefusedError: when neither a mount nor a bucket holds them, or a pod does not start.
    """
    mount = job_backends.checkpoint_mount(job)
    if mount is None and not job.checkpoints.binding:
        raise RefusedError(
            f"run {record.run_id}: its checkpoints were in its pods, and are gone with them",
            "Name a claim in job.mounts and a path below it in job.checkpoints.path",
        )
    on_disks = any(item.name == mount and item.host_path is not None and not item.binding for item in job.mounts)
    space = (record.backend_ref.namespace if record.backend_ref else None) or client.namespace
    ranges = client.list("v1/LimitRange", space).items
    nodes = record.hosts if on_disks else (None,)
    if not nodes:
        raise RefusedError(f"run {record.run_id}: no node of it is recorded", "Follow it with the train playbook first")
    made: list[KubeObject] = []
    try:
        image, logins = _prepare_image(client, str(record.image or job.image), space, bound)
        made += logins
        for node in nodes:
            name = f"muster-files-{secrets.token_hex(3)}"
            made.append(client.create(file_reader_job.build(job, record.run_id, name, space, node, image, ranges)))
        readers = made[len(logins) :]
        for login in logins:
            # The reader of a controller that was killed ends by itself, and what it was pulled with goes with it.
            (owned,) = set_owner([{"metadata": {}}], readers[0])
            client.patch(login, str(login["metadata"]["name"]), owned, space)
        sees = f"with the mount {mount}" if mount else f"that reads the object store {job.checkpoints.binding}"
        progress.say(f"starting a pod on {', '.join(record.hosts)}" if on_disks else f"starting a pod {sees}")
        yield [_reach(client, str(item["metadata"]["name"]), space, job) for item in readers]
    finally:
        for item in made:
            with contextlib.suppress(KubeError):
                client.delete(item, str(item["metadata"]["name"]), space)


def _prepare_image(
    client: Client, name: str, space: str, bound: JobImage | None
) -> tuple[ReaderImage, list[KubeObject]]:
    """Return the image of the readers, and the Secret that was made for the kubelet to pull it with, if any."""
    config = bound.build_login() if bound else None
    if config is None:
        return ReaderImage(name), []
    meta: ObjectMeta = {"name": f"muster-files-{secrets.token_hex(3)}", "namespace": space}
    data = {".dockerconfigjson": base64.b64encode(config).decode()}
    made = client.create(build_secret(meta, "kubernetes.io/dockerconfigjson", {}, data))
    return ReaderImage(name, (meta["name"],)), [made]


def _reach(client: Client, name: str, space: str, job: Job) -> NodeClient:
    """Return the client of the agent in the pod of a Job, once the pod runs."""
    pod = _wait(client, name, space)
    container = Container(space, str(pod["metadata"]["name"]), CONTAINER)

    def shell(command: str, data: bytes) -> tuple[int, str, str]:
        # The input of an exec has no end, and the agent reads to the end of its own.
        return exec_in_pod(client, container, ["sh", "-c", f"head -c {len(data)} | ({command})"], data, _SILENCE_S)

    return NodeClient(str((pod.get("spec") or {}).get("nodeName")), shell, python=job.python)


def _wait(client: Client, name: str, space: str) -> KubeObject:
    problem = f"its pod did not start within {_LIMIT_S:.0f} s"
    end = time.monotonic() + _LIMIT_S
    with client.watch("v1/Pod", space, labels=f"batch.kubernetes.io/job-name={name}", timeout_s=_LIMIT_S) as stream:
        for event in stream:
            if event.type in ("ADDED", "MODIFIED"):
                phase = str((event.object.get("status") or {}).get("phase") or "")
                if phase == "Running":
                    return event.object
                cause = events.find_pod_problem(event.object)
                if phase == "Failed" or (cause is not None and not cause.transient):
                    problem = cause.text if cause is not None else "its pod has failed"
                    break
            if time.monotonic() > end:
                break
    raise MusterError(f"{title('Job', space, name)}: {problem}", f"Look with kubectl get events -n {space}")
