# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State homes in a store whose controllers die at a write of the ledger, or are overtaken there.

Nothing of a controller is left when it dies: its disk goes with it, its lock stays until it expires.
"""

from __future__ import annotations

import copy
import pathlib
import shutil
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateStore, StoredItem
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LEDGER,
    parse_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.fakes.cycle import Crash, Server
from ansible_collections.muster.training.tests.faults.reported_world import Life, Reported, Step

CASE = Reported("stored", "runpod", "", "", "", ())
DAY_S = 86400.0


class CrashStore:
    """One controller's view of a store. ``act`` is called at its ``nth`` write of the ledger, before or after it."""

    def __init__(self, inner: StateStore) -> None:
        self._inner, self.title = inner, inner.title
        self.nth, self.after, self.count = 0, False, 0
        self.act: Callable[[], None] = self._die
        self.is_dead = self.is_away = False

    def _die(self) -> None:
        self.is_dead = True
        raise Crash

    def _answer(self) -> None:
        if self.is_away:
            raise TransportError(f"{self.title} does not answer")

    def read(self, name: str) -> StoredItem | None:
        self._answer()
        return self._inner.read(name)

    def write(self, name: str, data: bytes, version: str | None) -> str:
        if self.is_dead:
            # Its threads: nobody hears of them any more.
            return version or ""
        self._answer()
        self.count += name == LEDGER
        is_reached = name == LEDGER and self.count == self.nth
        if is_reached and not self.after:
            self.act()
        made = self._inner.write(name, data, version)
        if is_reached and self.after:
            self.act()
        return made

    def delete(self, name: str, version: str) -> None:
        self._answer()
        if not self.is_dead:
            self._inner.delete(name, version)


class StoredLife(Life):
    """Controllers that share a store and one account at a provider; ``expire`` makes the lock there an old one."""

    def __init__(
        self,
        folder: pathlib.Path,
        server: Server,
        url: str,
        monkeypatch: pytest.MonkeyPatch,
        inner: StateStore,
        expire: Callable[[], None],
    ) -> None:
        super().__init__(folder, CASE, server, url)
        self.inner, self.expire = inner, expire
        self.store = CrashStore(inner)
        self.made_elsewhere: set[str] = set()
        monkeypatch.setattr(StateHome, "store", lambda _home: self.store)

    def arrive(self) -> CrashStore:
        """Begin as another controller, with an empty disk, when the lock of the last one has expired."""
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        self.expire()
        self.store = CrashStore(self.inner)
        return self.store

    def elsewhere(self, command: str, count: int) -> dict[str, t.Any]:
        """Run a command on another controller, while this one is in the middle of something."""
        other, mine, before = copy.copy(self), self.store, set(self.api.things)
        other.folder = self.folder / "other"
        other.folder.mkdir(exist_ok=True)
        self.store = CrashStore(self.inner)
        try:
            return other.perform(command, count)
        finally:
            self.store = mine
            self.made_elsewhere |= set(self.api.things) - before

    def perform(self, command: str, count: int = 2) -> dict[str, t.Any]:
        """Run a command and return its result; what it says that is not so is kept in ``untrue``."""
        made_before = set(self.api.things)
        result = self._perform(Step(command, count=count))
        if not result.get("killed"):
            text = str(result)
            lines = (
                self._judge_rent(result, text, made_before | self.made_elsewhere)
                if command == "rent"
                else self._judge_ending(result, bool(result.get("failed")), text)
            )
            self.untrue += [f"{command}: {line}" for line in lines]
        return result

    @property
    def states(self) -> set[str]:
        """The states of all leases in the store."""
        found = self.inner.read(LEDGER)
        return {item.state for item in parse_ledger(found.data).leases.values()} if found else set()

    def die_at(self, command: str, nth: int, after: bool, then: str, ahead_s: float = 0.0) -> bool:
        """Let a controller die at a write and another one go on; return whether it came to that write.

        :param ahead_s: by how much the other one's clock is ahead.
        """
        if command == "teardown":
            assert not self.perform("rent").get("failed")
            self.arrive()
        self.store.nth, self.store.after = nth, after
        self.perform(command)
        was_killed = self.store.is_dead
        self.arrive()
        self.clock._now += ahead_s
        for item in self.api.things.values() if ahead_s < 0 else ():
            # The provider's own time does not go back.
            item.made_at = item.visible_from = min(item.made_at, self.clock.time())
        if then == "reap":
            self.clock.sleep(DAY_S + 7200)
        done = self.perform(then)
        assert not done.get("failed"), (command, nth, after, then, done.get("msg"))
        if then == "rent":
            assert len(self.ours) == 2, [item.name for item in self.ours]
            self.arrive()
            self.perform("teardown")
        place = (command, nth, after, then)
        assert (self.ours, self.touched, self.excess, self.untrue) == ([], 0, 0, []), place
        assert self.states <= {"verified", "failed"}, (place, self.states)
        return was_killed
