# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose a run in pods: their states, logs and recorded events, and the cluster's warnings about them.

It only reads, and works without the controller that submitted the run: the pods carry the run's id.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import time
import typing as t

from ....module_utils._model.errors import MusterError, RefusedError
from ....module_utils._model.metric_presets import guessed_forms
from ....module_utils._model.verdict import Cause
from ....module_utils._node.metric_lines import Forms, LineReader
from ....module_utils._node.pod_log import MARK
from ..._fabric.diagnosis import live_pods
from ..._fabric.diagnosis.known_run import KnownRun
from ..._fabric.diagnosis.live import RunDiagnosis, RunObservation
from ..._fabric.diagnosis.live_causes import build_live_cause
from ..._fabric.diagnosis.live_pods import PodSnapshot
from ..._fabric.diagnosis.live_rules import diagnose_live
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject, parse_time
from ..._kube.jobs.spec import CONTAINER, RUN_LABEL, gang_selector, object_name
from ..._kube.nodes.capacity import describe_sick_gpus
from ..._kube.objects import events
from ..._kube.objects import status as objects_status
from ..node_pool import run_status_kubernetes

_TAIL = 50_000
_WORKLOAD = "kueue.x-k8s.io/v1beta2/Workload"
_READ_S = 30.0
_AT_ONCE = 8
_FINISHED = ("Succeeded", "Failed")


def find_run(client: Client, namespace: str) -> str | None:
    """Return the one run with active pods in a namespace, None when there is none or several are."""
    pods = client.list("v1/Pod", namespace, labels=RUN_LABEL).items
    active = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _FINISHED]
    runs = {str(pod["metadata"]["labels"][RUN_LABEL]) for pod in active}
    return runs.pop() if len(runs) == 1 else None


def diagnose_pods(
    client: Client,
    namespace: str,
    run_id: str,
    *,
    world_size: int | None = None,
    nodes: int | None = None,
    saved_logs: pathlib.Path | None = None,
    succeeded: bool = False,
    known: KnownRun | None = None,
    forms: Forms | None = None,
) -> tuple[RunObservation, RunDiagnosis]:
    """Return the state of a run's pods, and its diagnosis.

    :param nodes: how many pods there should be, None when it is not known.
    :param saved_logs: the folder of logs on the controller, for pods that no longer exist.
    :param succeeded: whether the record says so.
    :param known: what the record and the events of the run say, None without a record.
    :param forms: how its program prints its steps.
    :raises RefusedError: when there are neither pods nor warnings nor saved logs of the run, and it has not ended.
    """
    warnings = [event for event in events.read_problems(client, namespace) if _is_about_run(event.object, run_id)]
    snapshots = _read_pods(client, namespace, run_id, guessed_forms() if forms is None else forms)
    if not snapshots and saved_logs is not None:
        snapshots = list(_read_saved_logs(saved_logs))
    started = [pod for pod in snapshots if pod.phase not in ("Pending", "Gone")]
    queued = [] if started else _find_queue_problems(client, namespace, run_id)
    is_ended = succeeded or (known is not None and bool(known.over))
    if not snapshots and not warnings and not queued and not is_ended:
        raise RefusedError(f"namespace {namespace} has no pod of run {run_id}", "Check muster_run_id and the namespace")
    observed = live_pods.observe_pods(snapshots, MARK, time.time())
    observation = RunObservation(run_id, observed, world_size, "kubernetes", succeeded, known)
    silent, warnings = _split_silent(warnings, snapshots)
    causes = [*_find_unready_nodes(client, snapshots), *live_pods.find_pod_causes(snapshots, MARK, silent)]
    causes += live_pods.find_cluster_causes([(problem.code, problem.text) for problem in queued], snapshots)
    if nodes is None or len(snapshots) < nodes or any(pod.waits or pod.phase == "Pending" for pod in snapshots):
        causes += live_pods.find_cluster_causes([(event.code, event.text) for event in warnings], snapshots)
    return observation, diagnose_live(observation, causes)


def _split_silent(
    warnings: t.Sequence[events.StartProblem], snapshots: t.Sequence[PodSnapshot]
) -> tuple[set[str], list[events.StartProblem]]:
    """Return the pods that are there and whose nodes are not ready, and the warnings that say nothing of nodes.

    What was said of the node of a pod that is there no more is over.
    """
    of_nodes = [item for item in warnings if live_pods.find_code(item.code, item.text) == "node_unreachable"]
    names = {item.object.rpartition("/")[2] for item in of_nodes}
    return names & {pod.name for pod in snapshots}, [item for item in warnings if item not in of_nodes or not snapshots]


def is_over(client: Client, run_id: str, reference: t.Mapping[str, object]) -> bool | None:
    """Return whether a run that its record does not call ended has ended by its cluster's word; None where unknown."""
    phase = run_status_kubernetes.describe_run(client, run_id, reference)["phase"]
    return {"waiting": False, "done": True, "failed": True, "gone": True}.get(str(phase))


def _read_pods(client: Client, namespace: str, run_id: str, forms: Forms) -> list[PodSnapshot]:
    """Return the pods of a run with their logs, the oldest first."""
    listed = client.list("v1/Pod", namespace, labels=gang_selector(run_id)).items
    # The pods that test the network before the job are not part of it.
    pods = [pod for pod in listed if "-probe-" not in pod["metadata"]["name"]]
    pods.sort(key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), pod["metadata"]["name"]))
    with concurrent.futures.ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda pod: _snapshot_pod(client, namespace, pod, forms), pods))


def _find_queue_problems(client: Client, namespace: str, run_id: str) -> list[events.StartProblem]:
    """Return what keeps a run in its queue, as far as there is Kueue and this user may read its Workloads."""
    try:
        workloads = client.list(_WORKLOAD, namespace).items
    except MusterError:
        return []
    owned = [item for item in workloads if _is_owned(item, object_name(run_id))]
    return [problem for item in owned if (problem := events.find_workload_problem(item))]


def _is_owned(value: KubeObject, name: str) -> bool:
    return any(owner.get("name") == name for owner in value["metadata"].get("ownerReferences") or [])


def _is_about_run(name: str, run_id: str) -> bool:
    """Return whether an event's object, such as ``Pod team/run-0``, belongs to the run."""
    own = object_name(run_id)
    short = name.rpartition("/")[2].rpartition(" ")[2]
    return short == own or (short.startswith(f"{own}-") and not short.startswith(f"{own}-probe"))


def _snapshot_pod(client: Client, namespace: str, pod: KubeObject, forms: Forms) -> PodSnapshot:
    name, status, spec = pod["metadata"]["name"], pod.get("status") or {}, pod.get("spec") or {}
    statuses: list[dict[str, t.Any]] = status.get("containerStatuses") or []
    container = next((item for item in statuses if item["name"] == CONTAINER), {})
    state = container.get("state") or {}
    end = state.get("terminated") or {}
    begun = status.get("phase") != "Pending" and "waiting" not in state and not end
    problem = None if begun else events.find_pod_problem(pod)
    started = bool(container.get("containerID") or end)
    lines, times, log_problem = _read_log(client, namespace, name) if started else ((), (), "")
    return PodSnapshot(
        name=name,
        node=spec.get("nodeName"),
        phase=str(status.get("phase") or "Pending"),
        waits=(problem.code, problem.text) if problem else None,
        exit_code=end.get("exitCode"),
        reason=str(end.get("reason") or ""),
        message=str(end.get("message") or ""),
        evicted=_eviction(pod),
        restarts=int(container.get("restartCount") or 0),
        lines=lines,
        problem=log_problem,
        memory=_memory_limit(spec),
        printed=tuple(_read_printed(lines, times, forms)),
    )


def _read_printed(
    lines: t.Sequence[str], times: t.Sequence[float | None], forms: Forms
) -> t.Iterator[tuple[float, int]]:
    """Yield (time, step) of the lines that a program printed, by the clock of its kubelet."""
    reader = LineReader(forms)
    for line, at in zip(lines, times, strict=True):
        if at is not None and not line.startswith(MARK):
            found = reader.read(line, at)
            yield from ((float(item["at"]), int(item["step"])) for item in found if "step" in item)


def _memory_limit(spec: t.Mapping[str, t.Any]) -> str:
    """Return the memory limit of the run's container in a pod's spec; empty without one."""
    for container in spec.get("containers") or []:
        if container.get("name") == CONTAINER:
            return str(((container.get("resources") or {}).get("limits") or {}).get("memory") or "")
    return ""


def _eviction(pod: KubeObject) -> str:
    """Return why the cluster evicted a pod; empty when it did not."""
    status = pod.get("status") or {}
    disruption = objects_status.conditions(pod).get("DisruptionTarget") or {}
    if disruption.get("status") == "True":
        return f"{disruption.get('reason')}: {disruption.get('message')}"
    return str(status.get("message") or "Evicted") if status.get("reason") == "Evicted" else ""


def _read_log(client: Client, namespace: str, name: str) -> tuple[tuple[str, ...], tuple[float | None, ...], str]:
    """Return the newest lines of a pod's log and when its kubelet took each, or why they cannot be read."""
    lines: list[str] = []
    times: list[float | None] = []
    try:
        stream = client.stream_log(namespace, name, CONTAINER, follow=False, tail=_TAIL, timeout_s=_READ_S)
        for line in stream:
            lines.append(line.decode(errors="replace"))
            times.append(parse_time(stream.position[0]) if stream.position else None)
    except MusterError as exc:
        return (), (), exc.message
    return tuple(lines), tuple(times), ""


def _read_saved_logs(folder: pathlib.Path) -> t.Iterator[PodSnapshot]:
    """Yield the logs on the controller of pods that no longer exist."""
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()[-_TAIL:]
        yield PodSnapshot(path.stem, path.stem, "Gone", lines=tuple(lines))


def _find_unready_nodes(client: Client, pods: t.Sequence[PodSnapshot]) -> t.Iterator[Cause]:
    """Yield the nodes of the run that are not ready, as far as this user may read nodes."""
    for name in sorted({pod.node for pod in pods if pod.node and pod.phase in ("Pending", "Running", "Unknown")}):
        try:
            node = client.get("v1/Node", name)
        except KubeError as exc:
            if exc.is_forbidden:
                return
            raise
        if node is None:
            yield build_live_cause("node_unreachable", "the node no longer exists in the cluster", name)
            continue
        ready = objects_status.conditions(node).get("Ready") or {}
        if ready.get("status") != "True":
            text = f"the node is not ready: {ready.get('reason')}: {ready.get('message')}"
            yield build_live_cause("node_unreachable", text, name)
        elif sick := describe_sick_gpus(node):
            yield build_live_cause("gpu_error", sick, name)
