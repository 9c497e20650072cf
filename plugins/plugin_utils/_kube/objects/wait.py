# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for any number of objects with one watch per kind.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import typing as t
from collections.abc import Callable, Sequence

from ....module_utils._http.clock import Deadline
from ....module_utils._model.errors import InputError, MusterError
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import Object, Resource, title
from ..api.watch import Event, Watch
from . import status
from .status import Predicate, State

Until = t.Literal["done", "running", "present", "absent"]
Key = tuple[Resource, str, str, str]
_TICK_S = 1.0
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """What is waited for: one object by its name, or at least ``count`` objects with labels."""

    resource: Resource
    namespace: str | None
    name: str = ""
    labels: str = ""
    count: int = 1

    @property
    def title(self) -> str:
        """What errors and results call it."""
        return title(self.resource.kind, self.namespace, self.name or f"with {self.labels or 'any labels'}")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a wait ended: ``done``, ``failed`` (one object failed) or ``timeout``, and each object's state then.

    ``outages`` counts how often the API server was out of reach meanwhile.
    """

    end: t.Literal["done", "failed", "timeout"]
    states: tuple[tuple[str, State], ...]
    requests: int
    duration_s: float
    outages: int
    objects: tuple[Object, ...] = dataclasses.field(default=(), repr=False)

    def line(self) -> str:
        """Return what is not done, in one line."""
        phase = "failed" if self.end == "failed" else "waiting"
        shown = [f"{name} {state.reason}".strip() for name, state in self.states if state.phase == phase]
        more = f"; and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        return "; ".join(shown[:_SHOWN]) + more


@dataclasses.dataclass(frozen=True, slots=True)
class _Feed:
    """What one watch covers."""

    resource: Resource
    namespace: str | None
    name: str = ""
    labels: str = ""


def wait(
    client: Client,
    wishes: Sequence[Wish],
    *,
    until: Until = "done",
    rule: Predicate | None = None,
    timeout_s: float = 300.0,
    tell: Callable[[str, State], None] = lambda _name, _state: None,
) -> Outcome:
    """Wait until all wishes are fulfilled, one object failed, or ``timeout_s`` passed.

    ``rule`` replaces the rule of the kinds. ``tell(name, state)`` is called when an object's state changes. An API
    server that is away for less than the client's patience only delays the end. Raises :class:`KubeError` when
    something may not be read, :class:`TransportError` when the server stays away.
    """
    if not wishes:
        raise InputError("objects", "there is nothing to wait for")
    return _Waiter(client, wishes, until, rule, tell).run(timeout_s)


class _Waiter:
    def __init__(
        self,
        client: Client,
        wishes: Sequence[Wish],
        until: Until,
        rule: Predicate | None,
        tell: Callable[[str, State], None],
    ) -> None:
        self._client = client
        self._wishes = wishes
        self._until = until
        self._rule = rule or (status.running if until == "running" else status.state)
        self._tell = tell
        self._told: dict[str, State] = {}
        self._events: queue.Queue[tuple[_Feed, Event | MusterError]] = queue.Queue()
        self._objects: dict[Key, Object] = {}
        self._removed: set[Key] = set()
        self._synced: set[_Feed] = set()
        self._feeds: dict[_Feed, Watch] = {}

    def run(self, timeout_s: float) -> Outcome:
        clock = self._client.line.clock
        end, began, sent = Deadline(clock, timeout_s), clock.monotonic(), self._client.requests
        for feed in _feeds(self._wishes):
            self._start(feed)
        verdict: t.Literal["done", "failed", "timeout"] = "timeout"
        try:
            while end.seconds_left() > 0:
                self._step(min(_TICK_S, end.seconds_left()))
                states = self._states()
                if any(state.phase == "failed" for _unused, state in states):
                    verdict = "failed"
                    break
                if len(self._synced) == len(self._feeds) and all(state.phase == "done" for _unused, state in states):
                    verdict = "done"
                    break
        finally:
            for watch in self._feeds.values():
                watch.close()
        outages = sum(watch.outages for watch in self._feeds.values())
        seconds = clock.monotonic() - began
        found = tuple(item for wish in self._wishes for item in self._fitting(wish))
        return Outcome(verdict, tuple(self._states()), self._client.requests - sent, seconds, outages, found)

    def _start(self, feed: _Feed) -> None:
        selector = f"metadata.name={feed.name}" if feed.name else ""
        watch = self._client.watch(feed.resource, feed.namespace, labels=feed.labels, fields=selector)
        self._feeds[feed] = watch
        threading.Thread(target=self._follow, args=(feed, watch), daemon=True, name="kube-wait").start()

    def _follow(self, feed: _Feed, watch: Watch) -> None:
        try:
            for event in watch:
                self._events.put((feed, event))
        except MusterError as error:
            self._events.put((feed, error))
        except Exception as error:
            # A defect of ours must end the wait, not this thread alone.
            self._events.put((feed, MusterError(f"internal error while watching: {type(error).__name__}")))

    def _step(self, timeout_s: float) -> None:
        """Take the next event and all that came with it."""
        try:
            self._take(*self._events.get(timeout=timeout_s))
            while True:
                self._take(*self._events.get_nowait())
        except queue.Empty:
            return

    def _take(self, feed: _Feed, event: Event | MusterError) -> None:
        if isinstance(event, MusterError):
            if isinstance(event, KubeError) and event.status == 403 and self._narrow(feed):
                return
            raise event
        if event.type == "SYNCED":
            self._synced.add(feed)
            return
        meta = event.object.get("metadata") or {}
        key = (feed.resource, feed.labels, str(meta.get("namespace") or ""), str(meta.get("name")))
        if event.type == "DELETED":
            self._objects.pop(key, None)
            self._removed.add(key)
        else:
            event.object.setdefault("apiVersion", feed.resource.api_version)
            event.object.setdefault("kind", feed.resource.kind)
            self._objects[key] = event.object

    def _narrow(self, feed: _Feed) -> bool:
        """Watch each namespace by itself where the whole cluster may not be watched; false when it was so before."""
        if feed.namespace is not None or not feed.resource.namespaced:
            return False
        mine = [wish for wish in self._wishes if wish.resource == feed.resource and wish.labels == feed.labels]
        places = {wish.namespace for wish in mine}
        if None in places:
            return False
        self._feeds.pop(feed).close()
        for place in sorted(str(place) for place in places):
            self._start(dataclasses.replace(feed, namespace=place))
        return True

    def _fitting(self, wish: Wish) -> list[Object]:
        if wish.name:
            found = self._objects.get(_key(wish))
            return [found] if found else []
        # A feed with labels holds nothing but objects that have them.
        return [
            item
            for (resource, labels, namespace, _unused), item in self._objects.items()
            if (resource, labels) == (wish.resource, wish.labels) and wish.namespace in (None, namespace)
        ]

    def _states(self) -> list[tuple[str, State]]:
        states: list[tuple[str, State]] = []
        for wish in self._wishes:
            states += self._of(wish)
        for name, state in states:
            if self._told.get(name) != state:
                self._told[name] = state
                self._tell(name, state)
        return states

    def _of(self, wish: Wish) -> list[tuple[str, State]]:
        found = self._fitting(wish)
        if self._until == "absent":
            if not found:
                return [(wish.title, State("done", "is gone"))]
            return [(_title(wish.resource, item), State("waiting", _leaving(item))) for item in found]
        missing: list[tuple[str, State]] = []
        if len(found) < wish.count:
            text = "does not exist yet" if wish.name else f"{len(found)} of {wish.count} exist"
            text = "was removed" if _key(wish) in self._removed else text
            missing = [(wish.title, State("waiting", text))]
        rule = (lambda _item: State("done", "exists")) if self._until == "present" else self._rule
        return missing + [(_title(wish.resource, item), rule(item)) for item in found]


def _key(wish: Wish) -> Key:
    return wish.resource, wish.labels, wish.namespace or "", wish.name


def _title(resource: Resource, item: Object) -> str:
    meta = item.get("metadata") or {}
    return title(resource.kind, meta.get("namespace"), meta.get("name"))


def _leaving(item: Object) -> str:
    meta = item.get("metadata") or {}
    if not meta.get("deletionTimestamp"):
        return "is still there, nobody asked for its removal"
    holders = ", ".join(meta.get("finalizers") or [])
    return f"is being deleted{f', held by {holders}' if holders else ''}"


def _feeds(wishes: Sequence[Wish]) -> list[_Feed]:
    """Return the watches that cover all wishes: one per kind and label selector."""
    groups: dict[tuple[Resource, str], list[Wish]] = {}
    for wish in wishes:
        groups.setdefault((wish.resource, wish.labels), []).append(wish)
    feeds: list[_Feed] = []
    for (resource, labels), mine in groups.items():
        spaces = {wish.namespace for wish in mine}
        space = mine[0].namespace if len(spaces) == 1 else None
        names = {wish.name for wish in mine}
        feeds.append(_Feed(resource, space, mine[0].name if len(names) == 1 else "", labels))
    return feeds
