# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run in pods as the live diagnosis sees it: its pods' logs become looks, what the cluster says becomes causes.

A pod's log carries what its ranks recorded as marked lines among the program's own. Pure rules on values.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import typing as t

from ....module_utils._model.error_line import last_error
from ....module_utils._model.verdict import Cause
from .live import NodeObservation
from .live_causes import build_live_cause
from .live_rules import diagnose_text

Dict = dict[str, t.Any]
_KILLED = 137
# What the cluster calls the reason, and the cause that it is of a run.
CODES: t.Mapping[str, str] = {
    "image": "pod_image",
    "unschedulable": "pod_unschedulable",
    "volume": "pod_volume",
    "quota": "pod_refused",
    "admission": "pod_refused",
    "webhook": "pod_refused",
    "queue": "job_queued",
    "crash": "pod_image",
    "container": "pod_image",
    "node": "pod_evicted",
}


@dataclasses.dataclass(frozen=True, slots=True)
class PodSnapshot:
    """One pod. ``waits`` is why it does not start: (the cluster's code, in words). ``exit_code`` is its container's.

    ``reason`` is why the container ended (``OOMKilled``), ``message`` what it said last, ``taken`` why the cluster took
    the pod away, ``lines`` its log, ``problem`` why that could not be read.
    """

    name: str
    node: str | None = None
    phase: str = "Pending"
    waits: tuple[str, str] | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    taken: str = ""
    restarts: int = 0
    lines: tuple[str, ...] = ()
    problem: str = ""
    memory: str = ""

    def to_dict(self) -> Dict:
        """Return what is shown of the pod; its log is not."""
        found = {key: getattr(self, key) for key in ("name", "phase", "exit_code", "restarts")}
        told = {"reason": self.reason, "waits": self.waits[1] if self.waits else "", "taken": self.taken}
        return {**found, **{key: value for key, value in told.items() if value}}


def observe_pods(pods: t.Sequence[PodSnapshot], mark: str, now: float) -> tuple[NodeObservation, ...]:
    """Return one look a pod, named by its node where no other pod is there.

    :param mark: what marked lines begin with.
    :param now: Unix seconds, the moment of the look.
    """
    count = collections.Counter(pod.node for pod in pods)
    return tuple(
        _observe_pod(pod, mark, now, (pod.node or pod.name) if count[pod.node] == 1 else pod.name) for pod in pods
    )


def _observe_pod(pod: PodSnapshot, mark: str, now: float, name: str) -> NodeObservation:
    events: list[Dict] = []
    steps: list[tuple[float, int]] = []
    own: list[str] = []
    for line in pod.lines:
        if not line.startswith(mark):
            own.append(line)
            continue
        stream, data = _parse_marked_line(line[len(mark) :])
        if stream == "events":
            events.append(data)
        at, step = data.get("at"), data.get("step")
        if stream == "metrics" and isinstance(at, int | float) and isinstance(step, int):
            steps.append((float(at), step))
    text = "\n".join(own) or pod.message
    logs = (diagnose_text(text, f"{name}/log"),) if text else ()
    seen: Dict = {"at": now, "ranks": read_ranks(events, pod.phase == "Running"), "units": {}, "pod": pod.to_dict()}
    return NodeObservation(name, seen, "", None, logs, tuple(steps))


def _parse_marked_line(text: str) -> tuple[str, Dict]:
    try:
        value = json.loads(text)
        stream, data = value["stream"], value["data"]
    except (ValueError, LookupError, TypeError):
        return "", {}
    return (str(stream), data) if isinstance(data, dict) else ("", {})


def read_ranks(events: t.Iterable[Dict], running: bool) -> list[Dict]:
    """Return the ranks that a pod's events tell of, the newest start of each; none lives in a pod that has ended."""
    found: dict[int, Dict] = {}
    for line in events:
        number = line.get("rank")
        if not isinstance(number, int):
            continue
        if line.get("kind") == "worker_started":
            told = {key: line.get(key) for key in ("rank", "attempt", "world_size", "pid")}
            found[number] = {**told, "started_at": line.get("at"), "alive": running, "exit_code": None, "signal": None}
        elif line.get("kind") == "worker_exit" and number in found:
            found[number].update(alive=False, exit_code=line.get("exit_code"), signal=line.get("signal"))
    return [found[number] for number in sorted(found)]


def find_pod_causes(pods: t.Sequence[PodSnapshot]) -> t.Iterator[Cause]:
    """Yield what the pods' own states say: not started, taken away, out of memory, ended badly."""
    for pod in pods:
        where = pod.node
        if pod.waits is not None:
            yield build_live_cause(CODES.get(pod.waits[0], "pod_refused"), pod.waits[1], where)
        if pod.taken:
            yield build_live_cause("pod_evicted", f"{pod.name} was taken away: {pod.taken}", where)
        elif pod.reason == "OOMKilled":
            limit = f", its memory limit is {pod.memory}" if pod.memory else ""
            yield build_live_cause(
                "oom_host", f"{pod.name} was killed: OOMKilled, exit code {pod.exit_code}{limit}", where
            )
        elif pod.exit_code:
            said = last_error("\n".join(pod.lines)) or last_error(pod.message)
            killed = " (killed by signal 9)" if pod.exit_code == _KILLED else ""
            words = f": {said}" if said else ""
            yield build_live_cause(
                "rank_ended", f"{pod.name} ended with exit code {pod.exit_code}{killed}{words}", where
            )
        if pod.problem:
            yield build_live_cause("log_unreadable", f"the log of {pod.name} cannot be read: {pod.problem}", where)


def find_cluster_causes(told: t.Iterable[tuple[str, str]], pods: t.Sequence[PodSnapshot]) -> t.Iterator[Cause]:
    """Yield what the cluster says of the run's objects beside the pods: (code, words), each kind once.

    A warning about a pod that has started since is over; one about the job itself says why pods are not there.
    """
    known = {CODES.get(pod.waits[0]) for pod in pods if pod.waits is not None}
    for code, text in told:
        name = CODES.get(code)
        if name is not None and name not in known:
            known.add(name)
            yield build_live_cause(name, text)
