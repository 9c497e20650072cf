# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small world for tests of provisioning: providers in memory, virtual time, a ledger in a list."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.lease import TeardownProof
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease, LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.machine_memory import MachineNote, recall
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import CreateOutcome, Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import delete_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import DeleteRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProber, SimProvider, h100
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock


class Lines:
    """An appender that keeps events."""

    def __init__(self) -> None:
        self.events: list[LedgerEvent] = []

    def keep(self, *kinds: str) -> None:
        """Lose all other lines, as a controller does that is killed before it writes them."""
        self.events = [event for event in self.events if event.event in kinds]

    def append(self, event: LedgerEvent) -> None:
        self.events.append(event)


class World:
    """Providers, time and a ledger. ``create`` and ``delete`` begin from the ledger each time, as a new process."""

    def __init__(self, *providers: SimProvider, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.providers = {item.name: item for item in providers or (SimProvider(self.clock, offers=[h100()]),)}
        for item in self.providers.values():
            item.clock = self.clock
        self.lines = Lines()
        self.prober = SimProber()
        self.notes: list[MachineNote] = []
        self._tokens = (f"{number:08x}" for number in itertools.count(1))

    @property
    def lambda_(self) -> SimProvider:
        return self.providers["lambda"]

    def request(self, count: int = 2, **more: t.Any) -> PoolRequest:
        more.setdefault("candidates", tuple(Candidate(provider=name) for name in self.providers))
        more.setdefault("timeout_at", self.clock.time() + 3600)
        return PoolRequest("lab", "h100", count, **more)

    def session(self) -> LedgerSession:
        return LedgerSession(self.lines.events, self.lines)

    def create(
        self, count: int = 2, *, is_abandoned: t.Callable[[], bool] = lambda: False, **more: t.Any
    ) -> CreateOutcome:
        return create_pool(
            self.request(count, **more),
            self.providers,
            self.session(),
            InlineScheduler(self.clock),
            prober=self.prober,
            terms=Terms(),
            tokens=lambda _taken: next(self._tokens),
            is_abandoned=is_abandoned,
            memory=recall(self.notes),
            remember=self.remember,
        )

    def remember(self, note: MachineNote) -> str:
        """Keep what a call remembers of a machine, for the next one."""
        self.notes.append(note)
        return ""

    def delete(self, scope: t.Callable[[Lease], bool] = lambda _lease: True, **more: t.Any) -> TeardownProof:
        more.setdefault("timeout_at", self.clock.time() + 1800)
        report = more.pop("report", lambda _line: None)
        request = DeleteRequest("lab", **more)
        return delete_leases(request, scope, self.providers, self.session(), InlineScheduler(self.clock), report)

    @property
    def leases(self) -> dict[tuple[str, str], Lease]:
        return self.session().leases

    def kinds(self) -> list[str]:
        """Return the ledger as words, such as ``intent 1``."""
        return [f"{item.event} {int(item.token, 16)}" for item in self.lines.events]

    def alive(self) -> int:
        """Return how many machines exist, now and after everything that is still on its way."""
        self.clock.sleep(7200)
        return sum(len(item.machines) for item in self.providers.values())
