# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small world for tests of renting: providers in memory, virtual time, a ledger in a list."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.lease import TeardownProof
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease, LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import CreateOutcome, Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import delete_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import DeleteRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.tests.fakes.landlord import SimLandlord, SimProber, h100
from ansible_collections.muster.training.tests.fakes.virtual import InlineStage, VirtualClock


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
    """Providers, time and a ledger. ``rent`` and ``give_back`` begin from the ledger each time, as a new process."""

    def __init__(self, *landlords: SimLandlord, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.landlords = {item.name: item for item in landlords or (SimLandlord(self.clock, offers=[h100()]),)}
        for item in self.landlords.values():
            item.clock = self.clock
        self.lines = Lines()
        self.prober = SimProber()
        self._tokens = (f"{number:08x}" for number in itertools.count(1))

    @property
    def lambda_(self) -> SimLandlord:
        return self.landlords["lambda"]

    def request(self, count: int = 2, **more: t.Any) -> PoolRequest:
        more.setdefault("candidates", tuple(Candidate(provider=name) for name in self.landlords))
        more.setdefault("timeout_at", self.clock.time() + 3600)
        return PoolRequest("lab", "h100", count, **more)

    def book(self) -> LedgerSession:
        return LedgerSession(self.lines.events, self.lines)

    def rent(self, count: int = 2, *, gone: t.Callable[[], bool] = lambda: False, **more: t.Any) -> CreateOutcome:
        return create_pool(
            self.request(count, **more),
            self.landlords,
            self.book(),
            InlineStage(self.clock),
            prober=self.prober,
            terms=Terms(),
            tokens=lambda _taken: next(self._tokens),
            gone=gone,
        )

    def give_back(self, scope: t.Callable[[Lease], bool] = lambda _lease: True, **more: t.Any) -> TeardownProof:
        more.setdefault("timeout_at", self.clock.time() + 1800)
        request = DeleteRequest("lab", **more)
        return delete_leases(request, scope, self.landlords, self.book(), InlineStage(self.clock))

    @property
    def leases(self) -> dict[tuple[str, str], Lease]:
        return self.book().leases

    def kinds(self) -> list[str]:
        """Return the ledger as words, such as ``intent 1``."""
        return [f"{item.event} {int(item.token, 16)}" for item in self.lines.events]

    def alive(self) -> int:
        """Return how many machines exist, now and after everything that is still on its way."""
        self.clock.sleep(7200)
        return sum(len(item.machines) for item in self.landlords.values())
