# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster says about why something does not start: warning events, pods and workloads, read as causes.

This is the one wording of such causes: whoever waits for something tells them by ``Cause.text``, each ``key`` once.
Pure but for ``read``.

This is a private utility of the collection; it may change without notice.
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
    "quota", "admission", "webhook", "unschedulable", "image", "volume", "queue", "crash", "node", "container", "other"
]
# The first that fits; reasons are those of Kubernetes' own controllers, of JobSet and of Kueue.
_RULES: t.Final[tuple[tuple[ProblemCode, str, str], ...]] = (
    ("webhook", "", r"failed calling webhook"),
    ("quota", "", r"exceeded quota|must specify .* for: "),
    ("admission", "", r"violates PodSecurity|ValidatingAdmissionPolicy|denied (?:the )?request|is forbidden"),
    ("volume", "FailedMount|FailedAttachVolume|FailedBinding|ProvisioningFailed", ""),
    ("volume", "FailedScheduling", r"persistentvolumeclaim|unbound|volume node affinity"),
    ("unschedulable", "FailedScheduling|Unschedulable", ""),
    ("image", "ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull", ""),
    ("image", "Failed|BackOff", r"pull|[Ii]mage|manifest unknown|no match for platform"),
    ("crash", "BackOff|CrashLoopBackOff", ""),
    ("node", "NodeNotReady|TaintManagerEviction|Evicted|Preempted|Preempting|NodeLost", ""),
    ("queue", "Pending|Inadmissible|QuotaReserved|AdmissionCheck.*", ""),
    ("container", "Failed|FailedCreatePodSandBox|FailedPostStartHook|CreateContainer.*|RunContainerError", ""),
)
# What happens before something starts and passes by itself, unless it goes on.
_TRANSIENT: t.Final = frozenset({"unschedulable", "queue", "volume", "node"})
# What Kubernetes warns of in every run that is well.
_USUAL: t.Final = re.compile(
    # … and of engines that end or restart a gang, which is told by what became of it.
    "Unhealthy|FailedToRetrieveImagePullSecret|DNSConfigForming|BackoffLimitExceeded.*|.*FailurePolicy.*|SetPodTemplate.*"
)
# What a container waits for in every run that is well.
_STARTING: t.Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_WORDS: t.Final[t.Mapping[ProblemCode, str]] = {
    "quota": "the namespace's quota is used up",
    "admission": "the cluster does not allow it",
    "webhook": "a webhook of the cluster does not answer",
    "unschedulable": "no node has room for it",
    "image": "its image cannot be pulled",
    "volume": "a volume is missing",
    "queue": "it waits in its queue",
    "crash": "its container ends again and again",
    "node": "its node is lost or busy",
    "container": "its container cannot be started",
    "other": "the cluster warns",
}
_FOREIGN_WORDS: t.Final = "its image is not made for the architecture of its node"
# In the words of containerd, Docker and CRI-O, and of Linux where the image does not say what it is made for.
_FOREIGN: t.Final = re.compile(
    "no match for platform|no matching manifest for|no image found in .* for architecture|exec format error"
)


# What the kubelet says when it has tried to pull more than once, or cannot try: a first try may fail for a moment.
_NO_IMAGE: t.Final = re.compile("ImagePullBackOff|ErrImageNeverPull|InvalidImageName|Back-off pulling")
# Who admits pods has read less of the cluster than who makes them: it has not seen their owner yet.
_BEHIND: t.Final = re.compile(r"denied the request: [\w.-]+ \"?[\w.-]+\"? not found")
# Registries that are busy or away say so; what they say else of an image is their answer.
_REGISTRY_AWAY: t.Final = re.compile(
    "toomanyrequests|429|50[0234] |dial tcp|i/o timeout|TLS handshake|connection reset|no such host|deadline exceeded"
)


SET_ASIDE = "; it goes on when somebody sets its spec.active to true"


@dataclasses.dataclass(frozen=True, slots=True)
class StartProblem:
    """Why something does not start. ``transient``: it may end by itself, such as a lack of room or a moved pod."""

    code: ProblemCode
    object: str
    line: str
    count: int
    transient: bool
    uid: str = ""

    @property
    def text(self) -> str:
        """Return the cause for people: what it is about, what is wrong, and the cluster's own words."""
        words = (
            _FOREIGN_WORDS
            if self.code in ("image", "container") and is_wrong_architecture(self.line)
            else _WORDS[self.code]
        )
        return f"{self.object}: {words}: {self.line}"

    @property
    def final(self) -> bool:
        """Whether no waiting mends it: pods that are made again meet it again."""
        if self.code in ("image", "container") and is_wrong_architecture(self.line):
            return True
        if self.code == "image":
            # This one says nothing of the reason, which others tell.
            if self.line.endswith("Error: ImagePullBackOff"):
                return False
            return bool(_NO_IMAGE.search(self.line)) and not _REGISTRY_AWAY.search(self.line)
        return self.code in ("admission", "queue") and not self.transient

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what tells it from others: the same of one object in other words is the same cause.

        That it waits in a queue is another one than why it does, which Kueue says a moment later, and another than that
        somebody set it aside.
        """
        apart = self.code == "other" or self.line == objects_status.QUEUED or self.line.endswith(SET_ASIDE)
        return self.object, self.code, self.line if apart else ""


def is_wrong_architecture(said: str) -> bool:
    """Return whether words about an image or a container mean that it is made for another architecture."""
    return bool(_FOREIGN.search(said))


def parse_event(event: KubeObject) -> StartProblem | None:
    """Return what a warning event (``v1/Event``) says, None for one that is no warning or comes in every run."""
    reason = server_text(event.get("reason") or "")
    # A probe that cannot even be asked is none of what passes: the image lacks the program (KubeRay's need wget).
    usual = _USUAL.fullmatch(reason) and "command not found" not in str(event.get("message"))
    if event.get("type") != "Warning" or usual:
        return None
    about = event.get("involvedObject") or {}
    name = title(str(about.get("kind") or "object"), about.get("namespace"), about.get("name"))
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    return _classify(name, reason, server_text(event.get("message") or ""), count, str(about.get("uid")))


def find_pod_problem(pod: KubeObject) -> StartProblem | None:
    """Return what keeps a pod from starting by its own status, None for one that is on its way."""
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    name, uid = title("Pod", meta.get("namespace"), meta.get("name")), str(meta.get("uid"))
    for entry in status.get("initContainerStatuses") or []:
        ended = (entry.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            said = ": ".join(server_text(part) for part in (ended.get("reason"), ended.get("message")) if part)
            line = f"{entry.get('name')} ended with exit code {ended['exitCode']}{f' ({said})' if said else ''}"
            return StartProblem("container", name, line, 1, False, uid)
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waits = (entry.get("state") or {}).get("waiting") or {}
        reason = server_text(waits.get("reason") or "")
        if reason not in _STARTING:
            return _classify(name, reason, server_text(waits.get("message") or ""), 1, uid)
    placed = objects_status.conditions(pod).get("PodScheduled") or {}
    # A gate is how Kueue keeps a pod waiting; what for, its Workload says.
    if placed.get("status") != "False" or placed.get("reason") == "SchedulingGated":
        return None
    return _classify(name, "FailedScheduling", server_text(placed.get("message") or placed.get("reason") or ""), 1, uid)


def find_workload_problem(workload: KubeObject) -> StartProblem | None:
    """Return what keeps a job in its queue by the status of its Workload, None for one that is admitted.

    It is final when Kueue has given the job up: nobody activates it again unless asked. Whoever deactivated it by hand
    may do so.
    """
    now = objects_status.read_state(workload)
    inactive = (workload.get("spec") or {}).get("active") is False
    if now.phase != "waiting" and not (now.phase == "failed" and inactive):
        return None
    meta = workload.get("metadata") or {}
    name = title("Workload", meta.get("namespace"), meta.get("name"))
    line, final = now.reason, inactive and objects_status.is_deactivated_by_kueue(workload)
    if inactive and not final:
        line += SET_ASIDE
    return StartProblem("queue", name, line, 1, not final, str(meta.get("uid")))


def find_unqueued_problem(job: KubeObject, looked: bool = True) -> StartProblem | None:
    """Return what keeps a suspended job that no Workload stands for, None for one that is not suspended.

    :param looked: whether its Workload was looked for.
    """
    now = objects_status.read_state(job)
    if now.phase != "waiting" or not objects_status.is_suspended(job):
        return None
    meta = job.get("metadata") or {}
    name = title(str(job.get("kind")), meta.get("namespace"), meta.get("name"))
    why = "Kueue has made no Workload of it: it may not know this kind (its logs say so)"
    if not looked:
        why = "it waits in a queue that cannot be read from here, or somebody has suspended it"
    line = f"{now.reason if now.reason.startswith('is suspended') else 'is suspended'}; {why}"
    return StartProblem("queue", name, line, 1, True, str(meta.get("uid")))


def _classify(name: str, reason: str, message: str, count: int, uid: str) -> StartProblem:
    code: ProblemCode = next((found for found, *rule in _RULES if _matches(rule[0], rule[1], reason, message)), "other")
    line = ": ".join(part for part in (reason, message) if part)
    # What was asked too early is asked again by the controllers that ask.
    early = code == "admission" and bool(ends_soon(line) or _BEHIND.search(line))
    return StartProblem(code, name, line, count, early or code in _TRANSIENT, uid)


def _matches(reasons: str, words: str, reason: str, message: str) -> bool:
    return bool((not reasons or re.fullmatch(reasons, reason)) and (not words or re.search(words, message)))


def parse_events(events: Iterable[KubeObject]) -> Iterator[StartProblem]:
    """Yield what warning events say, each cause of an object once, in the order of their first coming."""
    seen: set[tuple[str, str, str]] = set()
    for event in events:
        found = parse_event(event)
        if found is not None and found.key not in seen:
            seen.add(found.key)
            yield found


def read_problems(client: Client, namespace: str) -> list[StartProblem]:
    """Return the causes that the events of a namespace tell now."""
    listing = client.list("v1/Event", namespace, fields="type=Warning")
    return list(parse_events(sorted(listing.items, key=_first_seen)))


def is_stale(event: KubeObject, since: KubeObject) -> bool:
    """Return whether an event was last seen before ``since`` was made: it is about an object of its name before it."""
    series, meta = event.get("series") or {}, event.get("metadata") or {}
    told = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    seen = next((at for at in (*told, event.get("firstTimestamp"), meta.get("creationTimestamp")) if at), None)
    made = since["metadata"].get("creationTimestamp")
    # All in UTC and in whole seconds before the fraction (RFC 3339), so that their text has the order of time.
    return bool(seen and made) and str(seen)[:19] < str(made)[:19]


def _first_seen(event: KubeObject) -> str:
    return str(
        event.get("firstTimestamp") or event.get("eventTime") or (event.get("metadata") or {}).get("creationTimestamp")
    )
