# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose a run in pods: their states, logs and last words, and the cluster's warnings about them.

It reads only, and works without the controller that submitted the run: the pods carry the run's id.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import time
import typing as t

from ....module_utils._model.errors import MusterError, RefusedError
from ....module_utils._model.verdict import Cause
from ....module_utils._node.pod_log import MARK
from ..._fabric.diagnosis import live_pods
from ..._fabric.diagnosis.live import Diagnosis, Live
from ..._fabric.diagnosis.live_causes import cause
from ..._fabric.diagnosis.live_pods import PodSeen
from ..._fabric.diagnosis.live_rules import diagnose_live
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.jobs.spec import CONTAINER, RUN_LABEL, KubeObject, gang_selector, object_name
from ..._kube.objects import events
from ..._kube.objects import status as objects_status

Dict = dict[str, t.Any]
_TAIL = 50_000
_READ_S = 30.0
_AT_ONCE = 8
_FINISHED = ("Succeeded", "Failed")


def run_of(client: Client, namespace: str) -> str | None:
    """Return the one run that lives in a namespace, None when there is none or several do."""
    pods = client.list("v1/Pod", namespace, labels=RUN_LABEL).items
    living = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _FINISHED]
    found = {pod["metadata"]["labels"][RUN_LABEL] for pod in living}
    return found.pop() if len(found) == 1 else None


def look(
    client: Client,
    namespace: str,
    run_id: str,
    *,
    world_size: int | None = None,
    nodes: int | None = None,
    kept: pathlib.Path | None = None,
) -> tuple[Live, Diagnosis]:
    """Return what the cluster shows of a run, and its diagnosis.

    :param nodes: how many pods there should be, None when nobody knows.
    :param kept: the folder of logs that the controller kept, for pods that are gone.
    :raises RefusedError: when neither pods nor warnings nor kept logs know the run.
    """
    listed = client.list("v1/Pod", namespace, labels=gang_selector(run_id)).items
    # The short gang that proves the network beforehand is no part of the job.
    pods = [pod for pod in listed if "-probe-" not in pod["metadata"]["name"]]
    told = [item for item in events.read_problems(client, namespace) if _about(item.object, run_id)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        seen = list(pool.map(lambda pod: _seen(client, namespace, pod), sorted(pods, key=_order)))
    if not seen and kept is not None:
        seen = list(_kept(kept))
    if not seen and not told:
        raise RefusedError(
            f"no pod in the namespace {namespace} belongs to a run {run_id}", "Check muster_run_id and the namespace"
        )
    live = Live(run_id, live_pods.looks(seen, MARK, time.time()), world_size)
    more = [*live_pods.pod_causes(seen), *_down(client, seen)]
    if nodes is None or len(seen) < nodes or any(pod.waits for pod in seen):
        more += live_pods.cluster_causes([(item.code, item.text) for item in told], seen)
    return live, diagnose_live(live, more)


def _about(name: str, run_id: str) -> bool:
    own = object_name(run_id)
    short = name.rpartition("/")[2].rpartition(" ")[2]
    return short == own or (short.startswith(f"{own}-") and not short.startswith(f"{own}-probe"))


def _order(pod: KubeObject) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp")), pod["metadata"]["name"]


def _seen(client: Client, namespace: str, pod: KubeObject) -> PodSeen:
    name, status, spec = pod["metadata"]["name"], pod.get("status") or {}, pod.get("spec") or {}
    statuses: list[Dict] = status.get("containerStatuses") or []
    found = next((item for item in statuses if item["name"] == CONTAINER), {})
    ended = (found.get("state") or {}).get("terminated") or {}
    stuck = (
        events.find_pod_problem(pod)
        if status.get("phase") == "Pending" or "waiting" in (found.get("state") or {})
        else None
    )
    taken = objects_status.conditions(pod).get("DisruptionTarget") or {}
    words = f"{taken.get('reason')}: {taken.get('message')}" if taken.get("status") == "True" else ""
    evicted = status.get("reason") == "Evicted"
    began = bool(found.get("containerID")) or bool(ended)
    lines, problem = _log(client, namespace, name) if began else ((), "")
    containers = [item for item in spec.get("containers") or [] if item.get("name") == CONTAINER]
    limits = ((containers or [{}])[0].get("resources") or {}).get("limits") or {}
    return PodSeen(
        name=name,
        node=spec.get("nodeName"),
        phase=str(status.get("phase") or "Pending"),
        waits=(stuck.code, stuck.text) if stuck else None,
        exit_code=ended.get("exitCode"),
        reason=str(ended.get("reason") or ""),
        message=str(ended.get("message") or ""),
        taken=words or (str(status.get("message") or "Evicted") if evicted else ""),
        restarts=int(found.get("restartCount") or 0),
        lines=lines,
        problem=problem,
        memory=str(limits.get("memory") or ""),
    )


def _log(client: Client, namespace: str, name: str) -> tuple[tuple[str, ...], str]:
    """Return the newest lines of a pod's log, or why they cannot be read."""
    try:
        stream = client.stream_log(namespace, name, CONTAINER, follow=False, tail=_TAIL, timeout_s=_READ_S)
        return tuple(line.decode(errors="replace") for line in stream), ""
    except MusterError as exc:
        return (), exc.message


def _kept(folder: pathlib.Path) -> t.Iterator[PodSeen]:
    """Yield the logs that the controller kept of pods that are gone."""
    for place in sorted(folder.glob("*.log")):
        lines = place.read_text(errors="replace").splitlines()[-_TAIL:]
        yield PodSeen(place.stem, place.stem, "Gone", lines=tuple(lines))


def _down(client: Client, pods: t.Sequence[PodSeen]) -> t.Iterator[Cause]:
    """Yield the nodes of the run that are not ready, as far as this user may read nodes."""
    for name in sorted({pod.node for pod in pods if pod.node and pod.phase in ("Pending", "Running", "Unknown")}):
        try:
            node = client.get("v1/Node", name)
        except KubeError as exc:
            if exc.is_forbidden:
                return
            raise
        if node is None:
            yield cause("node_unreachable", "the node is gone from the cluster", name)
            continue
        ready = objects_status.conditions(node).get("Ready") or {}
        if ready.get("status") != "True":
            yield cause(
                "node_unreachable", f"the node is not ready: {ready.get('reason')}: {ready.get('message')}", name
            )
