# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reaches the checkpoints of a run in pods: a short Job has a pod with their mount, if any, that runs the node
agent.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
import typing as t

from ....module_utils._model import job_backends
from ....module_utils._model.errors import MusterError, RefusedError, UnreachableError
from ....module_utils._model.job import Job
from ....module_utils._model.run_record import RunRecord
from ..._hosts.node_client import NodeClient
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject, ObjectMeta, title
from ..._kube.api.pod_exec import Container, exec_in_pod
from ..._kube.jobs import file_reader_job, visit_job
from ..._kube.jobs.file_reader_job import ReaderImage
from ..._kube.jobs.spec import CONTAINER, set_owner
from ..._kube.objects import events
from ..._kube.objects.secrets import build_secret
from ..shared.progress import Progress
from ..training_job.kubernetes.force_delete import node_state

if t.TYPE_CHECKING:
    from ..training_job.image_pin import JobImage

_LIMIT_S: t.Final = 300.0
# How long a node is waited for that takes no pod, while others do; and how often a wait is said.
_PATIENCE_S: t.Final = 45.0
_SAY_S: t.Final = 15.0
# The agent computes checksums of whole checkpoints before it answers.
_SILENCE_S: t.Final = 600.0


@contextlib.contextmanager
def open_readers(
    client: Client, record: RunRecord, job: Job, progress: Progress, bound: JobImage | None = None
) -> t.Iterator[list[NodeClient]]:
    """Return nodes that see the run's checkpoints: any one, or each of its own where they are on the nodes' disks.

    Of checkpoints in a bucket alone, the node is one that reaches what pods reach. Nodes that take no pod come last,
    and answer with why.

    :param bound: the image of the job where its registry is bound: the Secret that the run had of it went with the run.
    :raises RefusedError: when neither a mount nor a bucket holds them.
    :raises MusterError: when no pod starts.
    """
    mount = job_backends.checkpoint_mount(job)
    nodes = _find_nodes(record, job, mount)
    space = (record.backend_ref.namespace if record.backend_ref else None) or client.namespace
    ranges = client.list("v1/LimitRange", space).items
    lost = {node: problem for node in nodes if node is not None and (problem := _find_loss(client, node))}
    made: list[KubeObject] = []
    readers: dict[str, str | None] = {}
    try:
        image, logins = _prepare_image(client, str(record.image or job.image), space, bound)
        made += logins
        for node in (node for node in nodes if node not in lost):
            name = f"muster-files-{secrets.token_hex(3)}"
            made.append(client.create(file_reader_job.build(job, record.run_id, name, space, node, image, ranges)))
            readers[name] = node
        for login in logins if readers else ():
            # The reader of a controller that was killed ends by itself, and what it was pulled with goes with it.
            (owned,) = set_owner([{"metadata": {}}], made[len(logins)])
            client.patch(login, str(login["metadata"]["name"]), owned, space)
        sees = f"with the mount {mount}" if mount else f"that reads the object store {job.checkpoints.binding}"
        places = ", ".join(node for node in readers.values() if node is not None)
        if readers:
            progress.say(f"starting a pod on {places}" if places else f"starting a pod {sees}")
        yield _reach_all(client, space, job, _Starts(client, space, readers, progress), lost)
    finally:
        for item in made:
            with contextlib.suppress(KubeError):
                client.delete(item, str(item["metadata"]["name"]), space)


def _find_nodes(record: RunRecord, job: Job, mount: str | None) -> t.Sequence[str | None]:
    """Return the nodes whose disks hold the checkpoints, None in their place where any node sees them."""
    if mount is None and not job.checkpoints.binding:
        raise RefusedError(
            f"run {record.run_id}: its checkpoints were in its pods, and are gone with them",
            "Name a claim in job.mounts and a path below it in job.checkpoints.path",
        )
    on_disks = any(item.name == mount and item.host_path is not None and not item.binding for item in job.mounts)
    nodes = record.hosts if on_disks else (None,)
    if not nodes:
        raise RefusedError(f"run {record.run_id}: no node of it is recorded", "Follow it with the train playbook first")
    return nodes


def _reach_all(client: Client, space: str, job: Job, starts: _Starts, lost: t.Mapping[str, str]) -> list[NodeClient]:
    """Return the nodes whose pods run, and after them the others, which are said."""
    pods, problems = starts.wait()
    if not pods:
        said = "; ".join([*problems.values(), *(f"{node}: {problem}" for node, problem in lost.items())])
        raise MusterError(said, f"Look with kubectl get events -n {space}")
    silent = {**lost, **{str(starts.made[name]): problem for name, problem in problems.items()}}
    for node, problem in silent.items():
        starts.progress.say(f"warning: {node}: {problem}: what only its disk has cannot be read")
    return [*(_reach(client, pod, job) for pod in pods), *(_build_silent(*item) for item in silent.items())]


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


def _find_loss(client: Client, node: str) -> str:
    """Return that a node is not there, as far as this user may read nodes; empty where it is."""
    with contextlib.suppress(MusterError):
        state = node_state(client.get("v1/Node", node))
        return {"gone": "the node no longer exists", "silent": "the node does not answer"}.get(state, "")
    return ""


def _build_silent(node: str, problem: str) -> NodeClient:
    """Return the client of a node on which no pod starts."""

    def shell(command: str, data: bytes) -> tuple[int, str, str]:
        raise UnreachableError(node, problem)

    return NodeClient(node, shell)


def _reach(client: Client, pod: KubeObject, job: Job) -> NodeClient:
    """Return the client of the agent in a pod that runs."""
    meta = pod["metadata"]
    container = Container(str(meta["namespace"]), str(meta["name"]), CONTAINER)

    def shell(command: str, data: bytes) -> tuple[int, str, str]:
        # The input of an exec has no end, and the agent reads to the end of its own.
        return exec_in_pod(client, container, ["sh", "-c", f"head -c {len(data)} | ({command})"], data, _SILENCE_S)

    return NodeClient(str((pod.get("spec") or {}).get("nodeName")), shell, python=job.python)


class _Starts:
    """Waits for the pods of Jobs, ``made``: the name of each with the node that it is for, None for any."""

    def __init__(self, client: Client, space: str, made: t.Mapping[str, str | None], progress: Progress) -> None:
        self._client, self._space, self.made, self.progress = client, space, made, progress
        self._running: dict[str, KubeObject] = {}
        self._causes: dict[str, events.StartProblem] = {}
        # Those that no waiting starts.
        self._failed: dict[str, str] = {}

    def wait(self) -> tuple[list[KubeObject], dict[str, str]]:
        """Return the pods that run, and by the name of its Job why another one does not."""
        if not self.made:
            return [], {}
        labels, begun, said = f"{visit_job.JOB_LABEL} in ({','.join(self.made)})", time.monotonic(), 0.0
        with self._client.watch("v1/Pod", self._space, labels=labels, timeout_s=_LIMIT_S) as stream:
            while waiting := self._find_waiting(waited := time.monotonic() - begun):
                if waited > said + _SAY_S:
                    said = waited
                    self.progress.say(
                        "; ".join(f"waiting {waited:.0f} s for {self._describe(name)}" for name in waiting)
                    )
                event = stream.next(1.0)
                if event is not None and event.type in ("ADDED", "MODIFIED"):
                    self._take(event.object)
        return list(self._running.values()), {
            name: self._failed.get(name) or self._describe(name) for name in self.made if name not in self._running
        }

    def _find_waiting(self, waited: float) -> list[str]:
        """Return which Jobs may still get a pod that runs, after so many seconds."""
        names = [name for name in self.made if name not in self._running and name not in self._failed]
        if self._running and waited > _PATIENCE_S:
            # Others run: one that gets no machine is not waited for.
            names = [name for name in names if name not in self._causes or self._causes[name].code != "unschedulable"]
        return names if waited <= _LIMIT_S else []

    def _take(self, pod: KubeObject) -> None:
        name = str((pod["metadata"].get("labels") or {}).get(visit_job.JOB_LABEL))
        phase = str((pod.get("status") or {}).get("phase") or "")
        if phase == "Running":
            self._running[name] = pod
            return
        cause = events.find_pod_problem(pod)
        if cause is not None:
            self._causes[name] = cause
        if phase == "Failed" or (cause is not None and not cause.transient):
            self._failed[name] = f"{title('Job', self._space, name)}: {cause.text if cause else 'its pod has failed'}"

    def _describe(self, name: str) -> str:
        node, cause = self.made.get(name), self._causes.get(name)
        where = f" on {node}" if node else ""
        return f"{title('Job', self._space, name)}: its pod{where} has not started{f': {cause.text}' if cause else ''}"
