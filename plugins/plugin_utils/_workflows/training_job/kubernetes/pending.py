# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a run from starting or continuing: its queue, its suspension, warnings of the cluster.

Each cause is reported once, and again when it returns after the run has run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from .....module_utils._model import image_name
from .....module_utils._model.errors import MusterError
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject, title
from ...._kube.objects import events, status
from .ending.last_lines import is_over

# A registry that answers begins to send an image within seconds.
_PULLING_S = 30.0
# Kueue makes a Workload of a job within moments.
_UNQUEUED_S = 8.0
# What was asked too early is asked again within seconds, under load a little later.
_EARLY_S = 60.0


class PendingCauses:
    """What a run waits for, and what of it was said. ``recovering``: whether the API server was away a moment ago."""

    def __init__(self, queued: bool, recovering: Callable[[], bool]) -> None:
        self._recovering = recovering
        self._looked = queued
        self._explained = False
        self._since = time.monotonic()
        self._evicted = ""
        self._said: set[tuple[str, str, str]] = set()
        # Since when something was asked too early, and what was said of other pods of the gang.
        self._early: dict[tuple[str, str, str], float] = {}
        self._said_of_others: set[tuple[str, str]] = set()
        self._attempts = 0
        self.suspended = False

    def take_attempts(self, attempts: int) -> bool:
        """Take in how many attempts have begun, and return whether one has just begun.

        A cause that kept one from starting is reported again when it keeps the next one.
        """
        if attempts != self._attempts:
            self._attempts = attempts
            self._early.clear()
            self.forget()
            return True
        return False

    def take_suspension(self, main: KubeObject) -> bool:
        """Take in the run's object; return whether it has just been suspended."""
        before, self.suspended = self.suspended, status.is_suspended(main)
        if self.suspended and not before:
            self._since = time.monotonic()
        return self.suspended and not before

    @property
    def why(self) -> str:
        """Return the record's cause for an attempt that a suspension ended."""
        return "preempted" if self._evicted == "Preempted" else "suspended"

    def workload(self, workload: KubeObject) -> events.StartProblem | None:
        """Take in Kueue's Workload of the run; return what keeps it in its queue."""
        self._explained = True
        known = status.conditions(workload).get("Evicted") or {}
        self._evicted = str(known.get("reason") or "") if known.get("status") == "True" else ""
        found = events.find_workload_problem(workload)
        if found is None:
            # Admitted: whatever holds it up from now on is news, in whatever words it was said before.
            meta = workload["metadata"]
            self.forget(title("Workload", meta.get("namespace"), meta.get("name")))
        return found

    def take_unreadable(self) -> None:
        """Note that Workloads may not be read here."""
        self._looked = False

    def unexplained_suspension(self, main: KubeObject) -> events.StartProblem | None:
        """Return that the run is suspended and no Workload says why, once that has lasted."""
        if self._explained or time.monotonic() - self._since <= _UNQUEUED_S:
            return None
        return events.find_unqueued_problem(main, self._looked)

    def is_new(self, cause: events.StartProblem) -> bool:
        """Return whether a cause was not said yet; from now on it was."""
        if cause.is_early:
            now = time.monotonic()
            if now - self._early.setdefault(cause.key, now) < _EARLY_S:
                return False
        shared = (cause.code, cause.line) if cause.code in ("image", "pull", "container") else None
        new = cause.key not in self._said and shared not in self._said_of_others
        self._said.add(cause.key)
        if shared:
            self._said_of_others.add(shared)
        return new

    def forget(self, about: str | None = None) -> None:
        """Let what was said of an object, or of all, be news when it comes again."""
        self._said = {key for key in self._said if about is not None and key[0] != about}
        if about is None:
            self._said_of_others.clear()

    def is_final(self, cause: events.StartProblem) -> bool:
        """Return whether no waiting mends it. What answers just after an outage may not know the cluster yet."""
        return cause.final and not self._recovering()


class Hindrances:
    """What keeps pods from starting and may pass by itself, such as a registry that is away, for ``wait_s`` at most."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        self._since: dict[tuple[str, str], tuple[float, events.StartProblem]] = {}

    def take(self, cause: events.StartProblem) -> None:
        """Take in a cause; its time begins when it is seen first."""
        if cause.code in ("image", "admission", "container") or cause.misses_object:
            key = (cause.code, cause.uid or cause.object)
            self._since[key] = self._since.get(key, (time.monotonic(), cause))[0], cause

    def overdue(self, persists: Callable[[events.StartProblem], bool]) -> events.StartProblem | None:
        """Return a cause that has lasted for too long, None without one. Those that have passed are forgotten."""
        self._since = {key: known for key, known in self._since.items() if persists(known[1])}
        end = time.monotonic() - self.wait_s
        return next((cause for since, cause in self._since.values() if since < end), None)

    def describe(self, cause: events.StartProblem) -> str:
        """Return why a run ends by a cause that lasted, one line."""
        return f"{cause.text}; it lasted for more than placement.start_wait_s ({self.wait_s:g} s)"


class SlowPulls:
    """Finds images that are pulled for long: a registry that does not answer causes no warning for minutes."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        # When a pod's events are to be read, by its uid.
        self._due: dict[str, float] = {}
        self._found: set[str] = set()

    def find(self, pod: KubeObject) -> events.StartProblem | None:
        """Return that a pod still pulls its image and from where, each image once; to be asked again and again."""
        uid, now = str(pod["metadata"].get("uid")), time.monotonic()
        if not _is_being_created(pod):
            self._due.pop(uid, None)
            return None
        if now < self._due.setdefault(uid, now + _PULLING_S):
            return None
        self._due[uid] = now + _PULLING_S
        with contextlib.suppress(MusterError):
            about = self._client.list("v1/Event", self._namespace, fields=f"involvedObject.uid={uid}", patient=False)
            image = events.find_pulled_image(about.items)
            if image and image not in self._found:
                self._found.add(image)
                registry = image_name.full_name(image).partition("/")[0]
                line = f"{image}, from the registry {registry}, for more than {_PULLING_S:.0f} s"
                name = title("Pod", self._namespace, pod["metadata"].get("name"))
                return events.StartProblem("pull", name, line, 1, True, uid)
        return None


def _is_being_created(pod: KubeObject) -> bool:
    placed = bool((pod.get("spec") or {}).get("nodeName"))
    pending = (pod.get("status") or {}).get("phase") == "Pending"
    return placed and pending and events.find_pod_problem(pod) is None


def keeps_waiting(cause: events.StartProblem, pods: Mapping[str, KubeObject], begun: bool) -> bool:
    """Return whether a cause still keeps a run from starting that has its place.

    :param pods: the run's pods by uid. :param begun: whether it has begun before: then a pod that runs may train.
    """
    alive = {uid: pod for uid, pod in pods.items() if not is_over(pod)}
    if cause.uid not in alive:
        return not alive
    running = {uid for uid, pod in alive.items() if pod["status"].get("phase") == "Running"}
    return cause.uid not in running and not (running and begun and not cause.misses_object)
