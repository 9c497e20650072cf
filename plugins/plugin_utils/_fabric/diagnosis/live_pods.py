# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose a run in pods: its pods' logs become observations, the cluster's states and warnings become causes.

The events of a pod's ranks are marked lines in its log, among the program's own lines. Pure rules on values.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
import typing as t

from ....module_utils._model.error_line import last_error, rank_errors
from ....module_utils._model.run_attempt import FOLLOWING_CODES
from ....module_utils._model.verdict import Cause
from .file import diagnose_text
from .live import NodeObservation
from .live_causes import build_live_cause

_KILLED = 137
# The cluster's code for a pod's problem -> the cause code of a run.
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


# What Kueue says of a job that waiting alone does not start -> the cause code.
_QUEUED: t.Final = (
    (re.compile("unavailable in ClusterQueue"), "queue_lacks_resource"),
    (re.compile("PodsReady"), "pods_not_ready"),
    (re.compile("will never (?:fit|start)"), "never_fits"),
)


_NODE_SILENT: t.Final = re.compile("NodeNotReady|NodeLost")


def find_code(problem: str, text: str) -> str | None:
    """Return the cause code of the cluster's code for a problem and its words, None for an unknown code."""
    if problem == "node" and _NODE_SILENT.search(text):
        return "node_unreachable"
    if problem == "queue":
        return next((code for pattern, code in _QUEUED if pattern.search(text)), CODES["queue"])
    return CODES.get(problem)


@dataclasses.dataclass(frozen=True, slots=True)
class PodSnapshot:
    """The state of one pod. ``waits`` is why it does not start: (the cluster's code, in words).

    ``exit_code`` and ``reason`` (such as ``OOMKilled``) are its container's, ``message`` is its termination message,
    ``evicted`` why the cluster evicted the pod, ``lines`` its log, ``problem`` why that could not be read, ``printed``
    (time, step) of what the program printed.
    """

    name: str
    node: str | None = None
    phase: str = "Pending"
    waits: tuple[str, str] | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    evicted: str = ""
    restarts: int = 0
    lines: tuple[str, ...] = ()
    problem: str = ""
    memory: str = ""
    printed: tuple[tuple[float, int], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the pod's state without its log."""
        state = {key: getattr(self, key) for key in ("name", "node", "phase", "exit_code", "restarts")}
        optional = {
            "reason": self.reason,
            "waits": self.waits[1] if self.waits else "",
            "taken": self.evicted,
            "unread": self.problem,
        }
        return {**state, **{key: value for key, value in optional.items() if value}}


def observe_pods(pods: t.Sequence[PodSnapshot], mark: str, now: float) -> tuple[NodeObservation, ...]:
    """Return one observation a pod, named by its node when it is the only pod there.

    :param mark: what marked lines begin with.
    :param now: Unix seconds of the observation.
    """
    count = collections.Counter(pod.node for pod in pods)
    return tuple(
        _observe_pod(pod, mark, now, (pod.node or pod.name) if count[pod.node] == 1 else pod.name) for pod in pods
    )


def _observe_pod(pod: PodSnapshot, mark: str, now: float, name: str) -> NodeObservation:
    events: list[t.Mapping[str, object]] = []
    steps: list[tuple[float, int]] = []
    metrics: list[t.Mapping[str, object]] = []
    program_lines: list[str] = []
    for line in pod.lines:
        if not line.startswith(mark):
            program_lines.append(line)
            continue
        stream, data = _parse_marked_line(line[len(mark) :])
        if stream == "events":
            # Those of ranks name their pod's node, or none: here it is called by one name.
            events.append({**data, "node": name})
        elif stream == "metrics":
            metrics.append(data)
        at, step = data.get("at"), data.get("step")
        if stream == "metrics" and isinstance(at, int | float) and isinstance(step, int):
            steps.append((float(at), step))
    # What is printed is read of programs alone that report no steps by themselves.
    steps = steps or list(pod.printed)
    text = "\n".join(program_lines) or pod.message
    logs = (diagnose_text(text, f"{name}/log"),) if text else ()
    ranks = read_ranks(events, pod.phase == "Running" and not pod.evicted)
    answer = {"at": now, "ranks": ranks, "units": {}, "pod": pod.to_dict()}
    errors = rank_errors(text)
    said = last_error(text)
    if len(ranks) == 1 and said:
        errors = {t.cast(int, ranks[0]["rank"]): said} | errors
    return NodeObservation(name, answer, "", None, logs, tuple(steps), errors, tuple(events), tuple(metrics))


def _parse_marked_line(text: str) -> tuple[str, t.Mapping[str, object]]:
    """Return (stream, data) of a marked line; empty values for a line that is not complete."""
    try:
        value = json.loads(text)
        stream, data = value["stream"], value["data"]
    except (ValueError, LookupError, TypeError):
        return "", {}
    return (str(stream), data) if isinstance(data, dict) else ("", {})


def read_ranks(events: t.Iterable[t.Mapping[str, object]], running: bool) -> list[dict[str, object]]:
    """Return the ranks in a pod's events, the newest start of each; none is alive when the pod is not running."""
    ranks: dict[int, dict[str, object]] = {}
    for event in events:
        number = event.get("rank")
        if not isinstance(number, int):
            continue
        if event.get("kind") == "worker_started":
            rank = {key: event.get(key) for key in ("rank", "attempt", "gang", "world_size", "pid")}
            ranks[number] = {**rank, "started_at": event.get("at"), "alive": running, "exit_code": None, "signal": None}
        elif event.get("kind") == "worker_exit" and number in ranks:
            ended = {"exit_code": event.get("exit_code"), "signal": event.get("signal"), "ended_at": event.get("at")}
            ranks[number].update(alive=False, **ended)
        elif event.get("kind") in ("rank_stands", "rank_moves") and number in ranks:
            ranks[number]["standing"] = event if event["kind"] == "rank_stands" else None
    return [ranks[number] for number in sorted(ranks)]


def find_pod_causes(pods: t.Sequence[PodSnapshot], mark: str, silent: t.Container[str] = ()) -> t.Iterator[Cause]:
    """Yield the causes in the pods' own states: not started, evicted, out of memory, failed, log unreadable.

    How a rank ended is said of that rank, where its pod's log tells it.

    :param silent: the names of pods whose node is not ready, by the cluster's word.
    """
    for pod in pods:
        told = [_parse_marked_line(line[len(mark) :])[1] for line in pod.lines if line.startswith(mark)]
        refused = next((line for line in reversed(told) if line.get("kind") == "pod_refused"), None)
        has_rank = any(line.get("kind") == "worker_exit" and line.get("exit_code") for line in told)
        if pod.waits is not None:
            yield build_live_cause(find_code(*pod.waits) or "pod_refused", pod.waits[1], pod.node)
        if pod.name in silent and (pod.evicted or pod.phase != "Running"):
            text = f"the cluster says that it is not ready; {pod.name} was on it"
            yield build_live_cause("node_unreachable", text, pod.node)
        elif pod.evicted:
            yield build_live_cause("pod_evicted", f"{pod.name} was evicted: {pod.evicted}", pod.node)
        elif pod.reason == "OOMKilled":
            limit = f", its memory limit is {pod.memory}" if pod.memory else ""
            text = f"{pod.name} was killed: OOMKilled, exit code {pod.exit_code}{limit}"
            yield build_live_cause("oom_host", text, pod.node)
        elif refused is not None:
            yield from _find_refusal(pod, refused)
        elif pod.exit_code and pod.waits is None and not has_rank:
            error = last_error("\n".join(pod.lines)) or last_error(pod.message)
            signal = " (killed by signal 9)" if pod.exit_code == _KILLED else ""
            text = f"{pod.name} ended with exit code {pod.exit_code}{signal}{f': {error}' if error else ''}"
            yield build_live_cause("rank_ended", text, pod.node)
        if pod.problem:
            yield build_live_cause("log_unreadable", f"the log of {pod.name} cannot be read: {pod.problem}", pod.node)


def _find_refusal(pod: PodSnapshot, line: t.Mapping[str, t.Any]) -> t.Iterator[Cause]:
    """Yield why a pod did not start its program, as it said in its last line."""
    if line.get("exit_code") in FOLLOWING_CODES:
        # It was stopped while it waited for another one, whose reason counts.
        return
    detail = str(line.get("detail") or "")
    named = diagnose_text(detail, pod.name).causes
    code = named[0].code if named else "rank_ended"
    yield build_live_cause(code, f"{pod.name} did not start its program: {detail}", pod.node)


def find_cluster_causes(warnings: t.Iterable[tuple[str, str]], pods: t.Sequence[PodSnapshot]) -> t.Iterator[Cause]:
    """Yield the causes in the cluster's warnings about the run's objects: (code, words), each cause once.

    A warning about a pod that has started since is over; a warning about the job itself says why its pods are missing.
    """
    reported = {find_code(*pod.waits) for pod in pods if pod.waits is not None}
    for code, text in warnings:
        name = find_code(code, text)
        if name is not None and name not in reported:
            reported.add(name)
            yield build_live_cause(name, text)
