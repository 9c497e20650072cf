# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Broken states (tests/fixtures/broken_states): ``diagnose`` and the last line of the run name their causes.

The states were written after public reports before the rules were changed for them; those called blind before their
author had read a rule. The counts are gates: a rule that is changed must not lose a state.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
import tempfile
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import UnreachableError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._ansible import connections
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live import (
    NodeObservation,
    RunDiagnosis,
    RunObservation,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_rules import diagnose_live
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import CONTAINER
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import events
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import kubernetes
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import run as hosts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.explain import explain_end
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.follower import (
    _describe_cause,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.container_exits import (
    ContainerExits,
)

from .test_kubernetes import RUN, FakeClient, node, pod

Dict = dict[str, t.Any]
FOLDER = next(at for at in pathlib.Path(__file__).resolve().parents if at.name == "tests") / "fixtures/broken_states"
STATES: list[Dict] = [
    {**state, "backend": name}
    for name in ("hosts", "kubernetes")
    for state in yaml.safe_load((FOLDER / f"{name}.yml").read_text())
]
# Of a hundred.
CAUSES, ADVICE = 95, 90
# The rank that the launcher stopped because another one had ended.
STOPPED: Dict = {"attempt": 1, "pid": 9, "alive": False, "exit_code": 143, "signal": 15, "started_at": 1.0}
# Words of the other backend, in causes and in advice.
FOREIGN = {
    "hosts": re.compile(r"\b(?:pods?|Pod|kubelet|Service|emptyDir|NetworkPolicy|kubectl|claim)\b|\bpod_|job_queued"),
    "kubernetes": re.compile(r"\bSSH\b|\bssh\b|known_hosts|sudo|muster_node_state"),
}


@dataclasses.dataclass(frozen=True)
class Told:
    """What a state led to: the causes of ``diagnose``, the first one's fix, and the last line of the run."""

    codes: list[str]
    fix: str
    said: str
    line: str

    def names_cause(self, state: Dict) -> bool:
        return self.codes[:1] == [state["cause"]] and bool(re.search(state["words"], self.line))

    def advises(self, state: Dict) -> bool:
        texts = (self.fix, self.line) if self.line else (self.fix,)
        return all(re.search(pattern, text) for pattern in state["advice"] for text in texts)


def told(diagnosis: RunDiagnosis, line: str) -> Told:
    causes = diagnosis.causes
    said = "\n".join(f"{cause.code} {cause.fix}" for cause in (*causes, *diagnosis.also))
    return Told([cause.code for cause in causes], causes[0].fix if causes else "", said, line)


def end_line(end: RunOutcome, logs: t.Mapping[str, str], backend: t.Literal["hosts", "kubernetes"]) -> str:
    """Return the last line of a run that ended so, with these logs in its folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for place, text in logs.items():
            file = folder / run_record.log_file(place)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        return explain_end(folder, end, backend).detail


def on_hosts(state: Dict) -> Told:
    problems = {
        name: UnreachableError(name, *connections.explain_ssh(text, 0)) for name, text in state.get("ssh", {}).items()
    }
    logs = state.get("logs", {})
    observed = []
    for name in ("alpha", "beta"):
        if name in problems:
            observed.append(NodeObservation(name, None, str(problems[name])))
            continue
        ranks = [
            {"rank": rank, "attempt": 1, "world_size": 2, "pid": 100 + rank, "alive": code is None, "exit_code": code}
            | {"signal": code - 128 if code and code > 128 else None, "started_at": 1.0}
            for rank, (place, code) in state.get("exits", {}).items()
            if place == name
        ] or [{"rank": int(name == "beta"), "world_size": 2, **STOPPED}]
        texts = hosts._diagnose_texts(name, {"units/agent/log": logs.get(name, "")})
        observed.append(NodeObservation(name, {"at": 1000.0, "ranks": ranks, "units": {}}, "", None, texts))
    diagnosis = diagnose_live(RunObservation("x-1", tuple(observed), 2, "hosts"))
    if problems:
        return told(diagnosis, str(next(iter(problems.values()))))
    place, code = next(iter(state["exits"].values()))
    if code == 0:
        return told(diagnosis, "")
    end = RunOutcome("failed", code, "crash", _describe_cause("crash", place, code, Job("x")), place)
    return told(diagnosis, end_line(end, logs, "hosts"))


def in_pods(state: Dict) -> Told:
    name = f"{RUN}-0"
    status: Dict = {"phase": "Pending"}
    container: Dict | None = None
    if "waiting" in state:
        container = {"waiting": state["waiting"]}
    elif "terminated" in state:
        status, container = {"phase": "Failed"}, {"terminated": state["terminated"]}
    elif "unschedulable" in state:
        placed = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": state["unschedulable"],
        }
        status = {"phase": "Pending", "conditions": [placed]}
    elif "evicted" in state:
        status = {"phase": "Failed", "reason": "Evicted", "message": state["evicted"]}
    found = pod(name, log=state.get("log", "") + rank_lines(state), state=container, **status)
    found["metadata"]["uid"] = "u1"
    warnings = [
        {"type": "Warning", "reason": reason, "message": message.replace("RUN", RUN)}
        | {
            "involvedObject": {"kind": kind, "namespace": "team", "name": RUN if kind == "Job" else name},
            "metadata": {},
        }
        for kind, reason, message in state.get("events", [])
    ]
    pods = [] if status == {"phase": "Pending"} and container is None else [found]
    client = FakeClient(Pod=pods, Node=[node("n1")], Event=warnings, Workload=workloads(state))
    _seen, diagnosis = kubernetes.diagnose_pods(t.cast(t.Any, client), "team", RUN, world_size=None, nodes=1)
    return told(diagnosis, pod_line(state, found, warnings))


def workloads(state: Dict) -> list[Dict]:
    """Return Kueue's Workload of the run with the state's conditions; its name is Kueue's, its owner the run."""
    if "workload" not in state:
        return []
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": RUN, "uid": "j1", "controller": True}
    meta = {"name": "jobset-x-1a2b3", "namespace": "team", "uid": "w1", "ownerReferences": [owner]}
    return [
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": meta, "spec": {"active": True}}
        | {"status": {"conditions": state["workload"]}}
    ]


def rank_lines(state: Dict) -> str:
    """Return what the recorder of a pod's rank writes into its log: its start, and its end unless it was killed."""
    code = state.get("terminated", {}).get("exitCode")
    if code in (None, 128):
        return ""
    line: Dict = {"rank": 0, "attempt": 1, "world_size": 1, "pid": 7, "at": 5.0}
    ends = [] if code == 137 else [{**line, "kind": "worker_exit", "exit_code": code, "signal": None}]
    marked = [{"stream": "events", "data": data} for data in ({**line, "kind": "worker_started"}, *ends)]
    return "".join(f"{kubernetes.MARK}{json.dumps(data)}\n" for data in marked)


def pod_line(state: Dict, found: Dict, warnings: list[Dict]) -> str:
    """Return the last line of the run: of an ended container, else the problem that keeps it from starting."""
    container: Dict = next(iter(found["status"].get("containerStatuses") or []), {"name": CONTAINER, "state": {}})
    if "evicted" in state:
        about = {"kind": "Pod", "namespace": "team", "name": found["metadata"]["name"]}
        event = {"type": "Warning", "reason": "Evicted", "message": state["evicted"], "involvedObject": about}
        warnings = [event]
    problem = next((item for event in warnings if (item := events.parse_event(event))), None)
    problem = problem or next(map(events.find_workload_problem, workloads(state)), None)
    problem = problem or events.find_pod_problem(found)
    logs = {"n1": state.get("log", "")}
    if problem is not None:
        return end_line(RunOutcome("failed", 1, problem.code, problem.text), logs, "kubernetes")
    killed = ContainerExits("JobSet", 1).of_container(found, container, "n1", True)
    if killed:
        return end_line(RunOutcome("failed", 137, "out_of_memory", killed[0], "n1"), logs, "kubernetes")
    code = state["terminated"]["exitCode"]
    return end_line(
        RunOutcome("failed", code, "crash", f"a rank on n1 exited with code {code}", "n1"), logs, "kubernetes"
    )


@functools.cache
def results() -> list[tuple[Dict, Told]]:
    return [(state, (on_hosts if state["backend"] == "hosts" else in_pods)(state)) for state in STATES]


def test_each_state_is_there_once_and_names_its_source() -> None:
    blind = [state for state in STATES if state["id"].startswith("blind")]
    assert len(STATES) == 77 == len({state["id"] for state in STATES}) and len(blind) == 36
    assert all(state["source"].startswith("https://github.com/") for state in STATES)


def test_the_right_cause_comes_first() -> None:
    wrong = [
        f"{state['id']}: {seen.codes[:3]} instead of {state['cause']}; {seen.line[:200]}"
        for state, seen in results()
        if not seen.names_cause(state)
    ]
    print("\n".join([*wrong, f"right cause: {len(STATES) - len(wrong)} of {len(STATES)}"]))
    assert (len(STATES) - len(wrong)) * 100 >= CAUSES * len(STATES), wrong


def test_the_advice_helps() -> None:
    wrong = [f"{state['id']}: {seen.fix} | {seen.line[-300:]}" for state, seen in results() if not seen.advises(state)]
    print("\n".join([*wrong, f"advice: {len(STATES) - len(wrong)} of {len(STATES)}"]))
    assert (len(STATES) - len(wrong)) * 100 >= ADVICE * len(STATES), wrong


@pytest.mark.parametrize("backend", sorted(FOREIGN))
def test_no_cause_and_no_advice_is_of_another_backend(backend: str) -> None:
    foreign = [
        f"{state['id']}: {match.group()} in {text}"
        for state, seen in results()
        for text in (seen.said, seen.line.replace(RUN, ""))
        if state["backend"] == backend and (match := FOREIGN[backend].search(text))
    ]
    print("\n".join([*foreign, f"of another backend: {len(foreign)}"]))
    assert not foreign, foreign
