# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads why something does not start from warning events, pods and Workloads of Kueue.

Every workflow that waits reports these problems by ``StartProblem.text``, each ``key`` once. Pure but for
``read_problems``.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Iterable, Iterator

from ..api.client import Client
from ..api.errors import ends_soon, server_text
from ..api.kinds import KubeObject, title
from . import status as objects_status

ProblemCode = t.Literal[
    "quota",
    "admission",
    "webhook",
    "unschedulable",
    "image",
    "pull",
    "volume",
    "queue",
    "stopped",
    "crash",
    "node",
    "container",
    "other",
]
# The first match counts; reasons are those of Kubernetes' own controllers, of JobSet and of Kueue.
_RULES: t.Final[tuple[tuple[ProblemCode, str, str], ...]] = (
    ("webhook", "", r"failed calling webhook"),
    # What the kubelet may not read yet is "forbidden" to it, too.
    ("volume", "FailedMount|FailedAttachVolume", ""),
    ("quota", "", r"exceeded quota|must specify .* for: "),
    ("admission", ".*Fail.*|", r"\S+ \"[^\"]+\" is invalid: "),
    ("admission", "", r"violates PodSecurity|ValidatingAdmissionPolicy|denied (?:the )?request|is forbidden"),
    ("volume", "FailedBinding|ProvisioningFailed", ""),
    ("volume", "FailedScheduling", r"persistentvolumeclaim|unbound|volume node affinity"),
    ("unschedulable", "FailedScheduling|Unschedulable", ""),
    ("image", "ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull", ""),
    ("image", "Failed|BackOff", r"pull|[Ii]mage|manifest unknown|no match for platform"),
    ("crash", "BackOff|CrashLoopBackOff", ""),
    ("node", "NodeNotReady|TaintManagerEviction|Evicted|Preempted|Preempting|NodeLost", ""),
    ("queue", "Pending|Inadmissible|QuotaReserved|AdmissionCheck.*", ""),
    (
        "container",
        "Failed|FailedCreatePodSandBox|FailedPostStartHook|CreateContainer.*|RunContainerError|StartError|ContainerCannotRun",
        "",
    ),
)
# Problems that usually pass by themselves.
_QUEUE_LABEL: t.Final = "kueue.x-k8s.io/queue-name"
_PRIORITY_LABEL: t.Final = "kueue.x-k8s.io/priority-class"
_TRANSIENT: t.Final = frozenset({"unschedulable", "queue", "volume", "node"})
# Warnings of Kubernetes that come in every healthy run.
_USUAL: t.Final = re.compile(
    # The last four are of engines that end or restart a gang; the run reports that by itself.
    "Unhealthy|FailedToRetrieveImagePullSecret|DNSConfigForming|BackoffLimitExceeded.*|.*FailurePolicy.*|SetPodTemplate.*"
)
# What a container waits for in every healthy run.
_STARTING: t.Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_WORDS: t.Final[t.Mapping[ProblemCode, str]] = {
    "quota": "the namespace's quota is used up",
    "admission": "refused by an admission rule of the cluster",
    "webhook": "an admission webhook of the cluster does not answer",
    "unschedulable": "no node has room for it",
    "image": "its image cannot be pulled",
    "pull": "its image is still being pulled",
    "volume": "a volume is missing",
    "queue": "waiting in its queue",
    "stopped": "stopped by a user or another program",
    "crash": "its container crashes repeatedly",
    "node": "its node is lost or busy",
    "container": "its container cannot be started",
    "other": "warning of the cluster",
}
_NO_PROGRAM_TEXT: t.Final = "its image lacks the program that is to start"
_WRONG_ARCHITECTURE_TEXT: t.Final = "its image is not made for the architecture of its node"
# Messages of containerd, Docker and CRI-O, and of Linux where the image does not name its architecture.
_WRONG_ARCHITECTURE: t.Final = re.compile(
    "no match for platform|no matching manifest for|no image found in .* for architecture|exec format error"
)
# Messages of the kubelet after more than one pull, or when it cannot pull: a first pull may fail for a moment.
_NO_IMAGE: t.Final = re.compile("ImagePullBackOff|ErrImageNeverPull|InvalidImageName|Back-off pulling")
# An admission webhook whose cache is behind: it does not know the pods' owner yet.
_BEHIND: t.Final = re.compile(r"denied the request: [\w.-]+ \"?[\w.-]+\"? not found")
# A kubelet that has not read the pod's ConfigMaps, Secrets and claims yet: it is busy, or has just started, or the API
# server's node authorizer does not know yet that the pod is bound to its node.
_NOT_READ_YET: t.Final = re.compile(
    r'failed to sync (?:configmap|secret) cache: timed out|object "[^"]*"/"[^"]*" not registered'
    r'|is forbidden: User "system:node:[^"]*" cannot get resource'
)
# What a pod mounts does not exist.
_NO_OBJECT: t.Final = re.compile(r'(?:configmap|secret|persistentvolumeclaim) "[^"]*" not found')
# Messages of runc and crun: the image lacks the program that the container starts.
_NO_PROGRAM: t.Final = re.compile(
    r'executable file .*not found|exec: "[^"]*": (?:stat [^:]*: )?no such file or directory'
)
# The reasons of a container that its runtime could not start, as its status keeps them once it has ended.
_NOT_STARTED: t.Final = ("StartError", "ContainerCannotRun", "RunContainerError")
# Kueue's words for a pod set that is larger than the quota of a flavor, and for one that waits for others to end.
_TOO_LARGE: t.Final = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor [^,;]+, previously considered podsets requests "
    r"\((?P<before>[^)]*)\) \+ current podset request \((?P<asked>[^)]*)\) > maximum capacity \((?P<most>[^)]*)\)"
)
_IN_USE: t.Final = re.compile("insufficient unused quota")
# Kueue's words for a resource that the queue does not have at all.
_NOT_COVERED: t.Final = re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")
# Kueue's words for requests that the namespace's LimitRange refuses, or that are above their own limits.
_REFUSED_SIZE: t.Final = re.compile("didn't satisfy LimitRange constraints|resources validation failed")
# Messages of registries that are overloaded or unreachable; any other message is final.
_REGISTRY_AWAY: t.Final = re.compile(
    "toomanyrequests|429|50[0234] |dial tcp|i/o timeout|TLS handshake|connection reset|no such host|deadline exceeded"
)
# The scheduler's words where no node has the labels that a pod asks for, and no other reason.
_NO_MATCH: t.Final = re.compile(
    r"nodes are available: \d+ node\(s\) didn't match Pod's node affinity/selector\.(?: |$)"
)
# What the scheduler adds of pods that it could remove for this one.
_PREEMPTION: t.Final = re.compile(r" preemption: .*")
# The kubelet's message as it begins to pull an image.
_PULLING: t.Final = re.compile('Pulling image "([^"]+)"')
DEACTIVATED = "; set its spec.active to true to continue"


@dataclasses.dataclass(frozen=True, slots=True)
class StartProblem:
    """Why something does not start. ``transient``: it may pass by itself, such as a lack of room or a moved pod."""

    code: ProblemCode
    object: str
    line: str
    count: int
    transient: bool
    uid: str = ""

    @property
    def text(self) -> str:
        """Return the problem in one line: the object, the problem, and the cluster's own message."""
        return f"{self.object}: {self._words}: {self.line}"

    @property
    def wait(self) -> str:
        """Return what is waited for, for a line about the run: the scheduler's words, or what the problem is."""
        if self.code != "unschedulable":
            return f"waiting: {self._words}"
        said = _PREEMPTION.sub("", self.line.removeprefix("FailedScheduling: "))
        return f"waiting for a machine: {said.rstrip('. ')}"

    @property
    def _words(self) -> str:
        if self.code in ("image", "container") and is_wrong_architecture(self.line):
            return _WRONG_ARCHITECTURE_TEXT
        if self.code == "container" and _NO_PROGRAM.search(self.line):
            return _NO_PROGRAM_TEXT
        if self.code == "quota" and "must specify" in self.line:
            return "the namespace's quota asks for requests and limits"
        if self.code == "admission" and " is invalid: " in self.line:
            return "refused by the cluster as invalid"
        if self.code == "unschedulable" and "anti-affinity" in self.line:
            return "no machine is free of the job's other pods (job.placement.share_machines: false)"
        if self.code == "unschedulable" and _NO_MATCH.search(self.line):
            return "no node matches its node affinity, such as the island of job.placement.island"
        if self.code == "image" and "InvalidImageName" in self.line:
            return "its image has a name that no registry can have (job.image)"
        return (_describe_size(self.line) if self.never_fits else "") or _WORDS[self.code]

    @property
    def never_fits(self) -> bool:
        """Whether it asks for more than the whole quota of its queue, or than its namespace allows."""
        return self.code == "queue" and _is_too_large(self.line)

    @property
    def misses_object(self) -> bool:
        """Whether a ConfigMap, a Secret or a claim that it mounts does not exist."""
        return self.code == "volume" and bool(_NO_OBJECT.search(self.line))

    @property
    def is_early(self) -> bool:
        """Whether a component was asked before it had read what exists: it is asked again within seconds."""
        behind = self.code == "admission" and _BEHIND.search(self.line)
        return bool(behind or (self.code == "volume" and _NOT_READ_YET.search(self.line)))

    @property
    def final(self) -> bool:
        """Whether waiting does not help: a new pod would have the same problem."""
        if self.code in ("image", "container") and is_wrong_architecture(self.line):
            return True
        if self.code == "container":
            return bool(_NO_PROGRAM.search(self.line))
        if self.code == "image":
            # This message does not name the reason; other events do.
            if self.line.endswith("Error: ImagePullBackOff"):
                return False
            return bool(_NO_IMAGE.search(self.line)) and not _REGISTRY_AWAY.search(self.line)
        return self.code in ("admission", "queue") and not self.transient

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the identity of the problem: the same code of one object in other words is the same problem.

        That it is queued is another problem than why, which Kueue writes a moment later, and than its deactivation.
        """
        by_line = self.code == "other" or self.line == objects_status.QUEUED or self.line.endswith(DEACTIVATED)
        return self.object, self.code, self.line if by_line else ""


def is_wrong_architecture(message: str) -> bool:
    """Return whether a message about an image or a container says that it was built for another architecture."""
    return bool(_WRONG_ARCHITECTURE.search(message))


def _is_too_large(message: str) -> bool:
    """Return whether Kueue says that no waiting helps: each flavor's whole quota is too small, or it is refused."""
    never = (_REFUSED_SIZE, _TOO_LARGE, _NOT_COVERED)
    return any(pattern.search(message) for pattern in never) and not _IN_USE.search(message)


def _describe_size(message: str) -> str:
    if missing := _NOT_COVERED.search(message):
        return f"will never start, its queue offers no {missing['resource']}"
    found = _TOO_LARGE.search(message)
    if found is None:
        return "will never start, its requests are refused"
    before, asked, most = found["before"], found["asked"], found["most"]
    resource = "CPU" if found["resource"] == "cpu" else found["resource"]
    wanted = " + ".join(_cores(part) for part in (before, asked) if part != "0")
    return f"will never fit: {wanted} {resource} asked, the queue has {_cores(most)}"


def _cores(quantity: str) -> str:
    return f"{int(quantity[:-1]) / 1000:g}" if re.fullmatch("[0-9]+m", quantity) else quantity


def parse_event(event: KubeObject) -> StartProblem | None:
    """Return the problem of a warning event (``v1/Event``), None for other events and those of every healthy run."""
    reason = server_text(event.get("reason") or "")
    # A probe whose command is missing never passes: the image lacks the program (KubeRay's probes need wget).
    usual = _USUAL.fullmatch(reason) and "command not found" not in str(event.get("message"))
    if event.get("type") != "Warning" or usual:
        return None
    about = event.get("involvedObject") or {}
    name = title(str(about.get("kind") or "object"), about.get("namespace"), about.get("name"))
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    return _classify(name, reason, server_text(event.get("message") or ""), count, str(about.get("uid")))


def find_pod_problem(pod: KubeObject) -> StartProblem | None:
    """Return what keeps a pod from starting by its own status, None when nothing does."""
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    name, uid = title("Pod", meta.get("namespace"), meta.get("name")), str(meta.get("uid"))
    first, main = status.get("initContainerStatuses") or [], status.get("containerStatuses") or []
    failed = next(filter(None, map(_describe_exit, first)), None)
    if failed is not None:
        return StartProblem("container", name, failed, 1, False, uid)
    refused = [*map(_find_refusal, main), *map(_find_wait, [*first, *main]), _find_unscheduled(pod)]
    reason = next((found for found in refused if found is not None), None)
    return None if reason is None else _classify(name, *reason, 1, uid)


def describe_wait(pods: Iterable[KubeObject]) -> str:
    """Return what pods that have not started wait for, first a machine; empty where nothing is known to keep them."""
    pending = (pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending")
    problems = [problem for pod in pending if (problem := find_pod_problem(pod))]
    problems.sort(key=lambda problem: problem.code != "unschedulable")
    return problems[0].wait if problems else ""


def _state_of(container: t.Mapping[str, t.Any], name: str) -> t.Mapping[str, t.Any]:
    return (container.get("state") or {}).get(name) or {}


def _describe_exit(container: t.Mapping[str, t.Any]) -> str | None:
    """Return how a container that runs before the others has failed, None for one that has not."""
    ended = _state_of(container, "terminated")
    if not ended.get("exitCode"):
        return None
    text = ": ".join(server_text(part) for part in (ended.get("reason"), ended.get("message")) if part)
    return f"{container.get('name')} exited with code {ended['exitCode']}{f' ({text})' if text else ''}"


def _find_refusal(container: t.Mapping[str, t.Any]) -> tuple[str, str] | None:
    """Return reason and message of a container that ended without having started."""
    ended = _state_of(container, "terminated")
    refused = ended.get("reason") in _NOT_STARTED
    return (str(ended["reason"]), server_text(ended.get("message") or "")) if refused else None


def _find_wait(container: t.Mapping[str, t.Any]) -> tuple[str, str] | None:
    """Return reason and message of a container that waits for more than its start."""
    waits = _state_of(container, "waiting")
    reason = server_text(waits.get("reason") or "")
    return None if reason in _STARTING else (reason, server_text(waits.get("message") or ""))


def _find_unscheduled(pod: KubeObject) -> tuple[str, str] | None:
    placed = objects_status.conditions(pod).get("PodScheduled") or {}
    # Kueue holds a pod by a gate; its Workload says why.
    if placed.get("status") != "False" or placed.get("reason") == "SchedulingGated":
        return None
    return "FailedScheduling", server_text(placed.get("message") or placed.get("reason") or "")


def find_workload_problem(workload: KubeObject) -> StartProblem | None:
    """Return what keeps a job in its queue by the status of its Workload, None for one that is admitted.

    It is final when Kueue has deactivated the Workload. A Workload that a user has deactivated may be activated again.
    """
    state = objects_status.read_state(workload)
    inactive = (workload.get("spec") or {}).get("active") is False
    if state.phase != "waiting" and not (state.phase == "failed" and inactive):
        return None
    meta = workload.get("metadata") or {}
    name = title("Workload", meta.get("namespace"), meta.get("name"))
    line, final = state.reason, inactive and objects_status.is_deactivated_by_kueue(workload)
    if inactive and not final:
        line += DEACTIVATED
    return StartProblem("queue", name, line, 1, not final and not _is_too_large(line), str(meta.get("uid")))


def find_unqueued_problem(job: KubeObject, searched: bool = True) -> StartProblem | None:
    """Return what keeps a job without a Workload from starting: it is suspended, or its object asks for no pods.

    :param searched: whether its Workload was searched for.
    """
    meta, spec = job.get("metadata") or {}, job.get("spec") or {}
    name, uid = title(str(job.get("kind")), meta.get("namespace"), meta.get("name")), str(meta.get("uid"))
    state, is_suspended = objects_status.read_state(job), objects_status.is_suspended(job)
    if state.phase != "waiting" or not (is_suspended or spec.get("parallelism") == 0):
        return None
    if not is_suspended:
        return StartProblem("stopped", name, "spec.parallelism is 0", 1, True, uid)
    said = state.reason if state.reason.startswith("is suspended") else "is suspended"
    if _QUEUE_LABEL not in (meta.get("labels") or {}):
        return StartProblem("stopped", name, said, 1, True, uid)
    priority = (meta.get("labels") or {}).get(_PRIORITY_LABEL)
    first = f"that WorkloadPriorityClass {priority} (job.placement.priority) exists, then " if priority else ""
    why = f"Kueue has not created a Workload for it: check {first}Kueue's logs, it may not support this kind"
    if not searched:
        why = "it waits in a queue that cannot be read from here, or a user has suspended it"
    return StartProblem("queue", name, f"{said}; {why}", 1, True, uid)


def _classify(name: str, reason: str, message: str, count: int, uid: str) -> StartProblem:
    code: ProblemCode = next((code for code, *rule in _RULES if _matches(rule[0], rule[1], reason, message)), "other")
    line = ": ".join(part for part in (reason, message) if part)
    # A controller repeats a request that came too early.
    early = code == "admission" and bool(ends_soon(line) or _BEHIND.search(line))
    return StartProblem(code, name, line, count, early or code in _TRANSIENT, uid)


def _matches(reasons: str, words: str, reason: str, message: str) -> bool:
    return bool((not reasons or re.fullmatch(reasons, reason)) and (not words or re.search(words, message)))


def parse_events(events: Iterable[KubeObject]) -> Iterator[StartProblem]:
    """Yield the problems of warning events, each once, in the order of their first event."""
    keys: set[tuple[str, str, str]] = set()
    for event in events:
        problem = parse_event(event)
        if problem is not None and problem.key not in keys:
            keys.add(problem.key)
            yield problem


def read_problems(client: Client, namespace: str) -> list[StartProblem]:
    """Return the problems by the present events of a namespace."""
    listing = client.list("v1/Event", namespace, fields="type=Warning")
    return list(parse_events(sorted(listing.items, key=_first_seen)))


def find_pulled_image(events: Iterable[KubeObject]) -> str:
    """Return the image that a pod is pulling by the events about it, empty when it pulls none."""
    about_images = ("Pulling", "Pulled", "Failed", "BackOff")
    news = sorted((event for event in events if event.get("reason") in about_images), key=last_seen)
    found = _PULLING.search(server_text(news[-1].get("message") or "")) if news else None
    return found.group(1) if found else ""


def is_stale(event: KubeObject, owner: KubeObject) -> bool:
    """Return whether an event was last seen before ``owner`` was created: it is about an earlier object of its name."""
    seen, created = last_seen(event), owner["metadata"].get("creationTimestamp")
    # All are UTC with whole seconds before the fraction (RFC 3339): their text has the order of time.
    return bool(seen and created) and seen[:19] < str(created)[:19]


def last_seen(event: KubeObject) -> str:
    """Return when an event was last seen, as the cluster wrote it, empty where it does not say."""
    series, meta = event.get("series") or {}, event.get("metadata") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((at for at in (*times, event.get("firstTimestamp"), meta.get("creationTimestamp")) if at), ""))


def _first_seen(event: KubeObject) -> str:
    return str(
        event.get("firstTimestamp") or event.get("eventTime") or (event.get("metadata") or {}).get("creationTimestamp")
    )
