# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of one run: what was on disk, what this run added, and what could not be written.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.errors import MusterError
from ....module_utils._model.ledger import Lease, LedgerEvent, fold
from ....module_utils._secrets.scrubber import scrub
from .ledger_store import Appender

# Brings a copy of the whole ledger to another machine; raises MusterError when it did not arrive there.
SendReplica = t.Callable[[t.Sequence[LedgerEvent]], None]


class LedgerSession:
    """Events of a ledger with a way to add to them. ``problem`` is the first line that did not reach the disk.

    With a ``replica``, an intent must have reached the other machine too; what follows it may come there later, for a
    reaper that knows the intent finds the rest by listing. ``mirror_problem`` is why the last copy is not there.
    """

    def __init__(self, events: t.Iterable[LedgerEvent], appender: Appender, replica: SendReplica | None = None) -> None:
        self._events = list(events)
        self._appender = appender
        self._replica = replica
        self.problem = ""
        self.replica_problem = ""

    @staticmethod
    def _clean(event: LedgerEvent) -> LedgerEvent:
        """Return the event without a secret that a provider's words may have quoted."""
        return dataclasses.replace(event, reason=scrub(event.reason)) if event.reason else event

    def record_intent(self, event: LedgerEvent) -> None:
        """Bring an intent to disk; raise MusterError when that fails, so that no create call follows."""
        self._appender.append(event)
        self._events.append(event)
        if self._replica is not None:
            try:
                self._replica(self._events)
            except MusterError:
                # Nothing was ordered: the line must not be waited for as if something had been.
                self.record(
                    dataclasses.replace(event, event="failed", settled=True, reason="not mirrored, not ordered")
                )
                raise

    def update_replica(self) -> None:
        """Bring the present state to the other machine, where there is one; a failure is kept as a warning."""
        try:
            if self._replica is not None:
                self._replica(self._events)
        except MusterError as error:
            self.replica_problem = str(error)

    def record(self, event: LedgerEvent) -> None:
        """Add what has happened. It counts in memory even when the disk refuses it: deleting must go on."""
        event = self._clean(event)
        self._events.append(event)
        try:
            self._appender.append(event)
        except MusterError as error:
            self.problem = self.problem or str(error)

    @property
    def events(self) -> tuple[LedgerEvent, ...]:
        """Return every event, those of before and those of this run."""
        return tuple(self._events)

    @property
    def leases(self) -> dict[tuple[str, str], Lease]:
        """Return the leases as this run knows them."""
        return fold(self._events)

    @property
    def tokens(self) -> frozenset[str]:
        """Return every token that was ever used."""
        return frozenset(event.token for event in self._events)
