# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for any number of objects with one watch per kind."""

from __future__ import annotations

import dataclasses
import queue
import threading
import typing as t
from collections.abc import Callable, Sequence

from ....module_utils._http.clock import Deadline
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.wording import name_some
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject, Resource, title
from ..api.watch import WatchEvent, WatchStream
from . import status
from .status import Predicate, State

Until = t.Literal["done", "running", "present", "absent"]
ObjectKey = tuple[Resource, str, str, str]
_TICK_S = 1.0
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class WaitTarget:
    """The target of a wait: one object by its name, or at least ``count`` objects with labels."""

    resource: Resource
    namespace: str | None
    name: str = ""
    labels: str = ""
    count: int = 1

    @property
    def title(self) -> str:
        """The target's name in errors and results."""
        return title(self.resource.kind, self.namespace, self.name or f"with {self.labels or 'any labels'}")


@dataclasses.dataclass(frozen=True, slots=True)
class WaitOutcome:
    """How a wait ended: ``done``, ``failed`` (one object failed) or ``timeout``, and each object's state then.

    ``outages`` counts the outages of the API server during the wait.
    """

    end: t.Literal["done", "failed", "timeout"]
    states: tuple[tuple[str, State], ...]
    requests: int
    duration_s: float
    outages: int
    objects: tuple[KubeObject, ...] = dataclasses.field(default=(), repr=False)

    def summary(self) -> str:
        """Return the objects that are not done, in one line."""
        phase = "failed" if self.end == "failed" else "waiting"
        shown = [f"{name} {state.reason}".strip() for name, state in self.states if state.phase == phase]
        return name_some(shown, _SHOWN, "; ")


@dataclasses.dataclass(frozen=True, slots=True)
class _WatchScope:
    """The scope of one watch."""

    resource: Resource
    namespace: str | None
    name: str = ""
    labels: str = ""


def wait(
    client: Client,
    targets: Sequence[WaitTarget],
    *,
    until: Until = "done",
    rule: Predicate | None = None,
    timeout_s: float = 300.0,
    report: Callable[[str, State], None] = lambda _name, _state: None,
) -> WaitOutcome:
    """Wait until all targets are reached, one object failed, or ``timeout_s`` passed.

    ``rule`` replaces the rule of the kinds. ``report(name, state)`` is called when an object's state changes. An outage
    of the API server within the client's patience only delays the end. Raises :class:`KubeError` when the user may not
    read something, :class:`TransportError` when the outage is longer.
    """
    if not targets:
        raise InputError("objects", "there is nothing to wait for")
    return _Waiter(client, targets, until, rule, report).run(timeout_s)


class _Waiter:
    def __init__(
        self,
        client: Client,
        targets: Sequence[WaitTarget],
        until: Until,
        rule: Predicate | None,
        report: Callable[[str, State], None],
    ) -> None:
        self._client = client
        self._targets = targets
        self._until = until
        self._rule = rule or (status.read_start_state if until == "running" else status.read_state)
        self._report = report
        self._reported: dict[str, State] = {}
        self._events: queue.Queue[tuple[_WatchScope, WatchEvent | MusterError]] = queue.Queue()
        self._objects: dict[ObjectKey, KubeObject] = {}
        self._deleted: set[ObjectKey] = set()
        self._synced: set[_WatchScope] = set()
        self._watches: dict[_WatchScope, WatchStream] = {}

    def run(self, timeout_s: float) -> WaitOutcome:
        clock = self._client.transport.clock
        end, began, requests = Deadline(clock, timeout_s), clock.monotonic(), self._client.requests
        for scope in _plan_watches(self._targets):
            self._start(scope)
        result: t.Literal["done", "failed", "timeout"] = "timeout"
        try:
            while end.seconds_left() > 0 and result == "timeout":
                self._step(min(_TICK_S, end.seconds_left()))
                phases = {state.phase for _unused, state in self._states()}
                if "failed" in phases:
                    result = "failed"
                elif len(self._synced) == len(self._watches) and phases <= {"done"}:
                    result = "done"
        finally:
            for watch in self._watches.values():
                watch.close()
        outages = sum(watch.outages for watch in self._watches.values())
        seconds = clock.monotonic() - began
        objects = tuple(item for target in self._targets for item in self._find_objects(target))
        return WaitOutcome(result, tuple(self._states()), self._client.requests - requests, seconds, outages, objects)

    def _start(self, scope: _WatchScope) -> None:
        selector = f"metadata.name={scope.name}" if scope.name else ""
        watch = self._client.watch(scope.resource, scope.namespace, labels=scope.labels, fields=selector)
        self._watches[scope] = watch
        threading.Thread(target=self._follow, args=(scope, watch), daemon=True, name="kube-wait").start()

    def _follow(self, scope: _WatchScope, watch: WatchStream) -> None:
        try:
            for event in watch:
                self._events.put((scope, event))
        except MusterError as error:
            self._events.put((scope, error))
        except Exception as error:
            # A programming error must end the wait, not this thread alone.
            self._events.put((scope, MusterError(f"internal error while watching: {type(error).__name__}")))

    def _step(self, timeout_s: float) -> None:
        """Handle the next event and all that have arrived with it."""
        try:
            self._handle(*self._events.get(timeout=timeout_s))
            while True:
                self._handle(*self._events.get_nowait())
        except queue.Empty:
            return

    def _handle(self, scope: _WatchScope, event: WatchEvent | MusterError) -> None:
        if isinstance(event, MusterError):
            if isinstance(event, KubeError) and event.status == 403 and self._narrow(scope):
                return
            raise event
        if event.type == "SYNCED":
            self._synced.add(scope)
            return
        meta = event.object.get("metadata") or {}
        key = (scope.resource, scope.labels, str(meta.get("namespace") or ""), str(meta.get("name")))
        if event.type == "DELETED":
            self._objects.pop(key, None)
            self._deleted.add(key)
        else:
            event.object.setdefault("apiVersion", scope.resource.api_version)
            event.object.setdefault("kind", scope.resource.kind)
            self._objects[key] = event.object

    def _narrow(self, scope: _WatchScope) -> bool:
        """Watch each namespace by itself when the user may not watch the cluster; false when that is done already."""
        if scope.namespace is not None or not scope.resource.namespaced:
            return False
        group = [
            target for target in self._targets if target.resource == scope.resource and target.labels == scope.labels
        ]
        namespaces = {target.namespace for target in group}
        if None in namespaces:
            return False
        self._watches.pop(scope).close()
        for namespace in sorted(str(namespace) for namespace in namespaces):
            self._start(dataclasses.replace(scope, namespace=namespace))
        return True

    def _find_objects(self, target: WaitTarget) -> list[KubeObject]:
        if target.name:
            item = self._objects.get(_key(target))
            return [item] if item else []
        # A watch with labels returns only objects that have them.
        return [
            item
            for (resource, labels, namespace, _unused), item in self._objects.items()
            if (resource, labels) == (target.resource, target.labels) and target.namespace in (None, namespace)
        ]

    def _states(self) -> list[tuple[str, State]]:
        states = [pair for target in self._targets for pair in self._target_states(target)]
        for name, state in states:
            if self._reported.get(name) != state:
                self._reported[name] = state
                self._report(name, state)
        return states

    def _target_states(self, target: WaitTarget) -> list[tuple[str, State]]:
        objects = self._find_objects(target)
        if self._until == "absent":
            if not objects:
                return [(target.title, State("done", "is deleted"))]
            return [(_title(target.resource, item), State("waiting", _deletion_text(item))) for item in objects]
        missing: list[tuple[str, State]] = []
        if len(objects) < target.count:
            text = "does not exist yet" if target.name else f"{len(objects)} of {target.count} exist"
            text = "was deleted" if _key(target) in self._deleted else text
            missing = [(target.title, State("waiting", text))]
        rule = (lambda _item: State("done", "exists")) if self._until == "present" else self._rule
        return missing + [(_title(target.resource, item), rule(item)) for item in objects]


def _key(target: WaitTarget) -> ObjectKey:
    return target.resource, target.labels, target.namespace or "", target.name


def _title(resource: Resource, item: KubeObject) -> str:
    meta = item.get("metadata") or {}
    return title(resource.kind, meta.get("namespace"), meta.get("name"))


def _deletion_text(item: KubeObject) -> str:
    meta = item.get("metadata") or {}
    if not meta.get("deletionTimestamp"):
        return "still exists, and its deletion was not requested"
    finalizers = ", ".join(meta.get("finalizers") or [])
    return f"is being deleted{f', waits for {finalizers}' if finalizers else ''}"


def _plan_watches(targets: Sequence[WaitTarget]) -> list[_WatchScope]:
    """Return the scopes of the watches for all targets: one per kind and label selector."""
    groups: dict[tuple[Resource, str], list[WaitTarget]] = {}
    for target in targets:
        groups.setdefault((target.resource, target.labels), []).append(target)
    scopes: list[_WatchScope] = []
    for (resource, labels), group in groups.items():
        spaces = {target.namespace for target in group}
        space = group[0].namespace if len(spaces) == 1 else None
        names = {target.name for target in group}
        scopes.append(_WatchScope(resource, space, group[0].name if len(names) == 1 else "", labels))
    return scopes
