# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger during one call: what was on disk, what this call added, and what could not be written."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.errors import MusterError
from ....module_utils._model.ledger import Lease, LedgerEvent, fold_events
from ....module_utils._model.state_store import StateConflictError
from ....module_utils._secrets.scrubber import scrub
from .ledger_store import Appender

# Copies the whole ledger to another machine; raises MusterError when the copy did not arrive there.
SendReplica = t.Callable[[t.Sequence[LedgerEvent]], None]


class LedgerSession:
    """The events of a ledger, to read and to add to. ``problem`` is why the first lost line did not reach the disk,
    ``unwritten`` has all lost lines. ``is_overtaken`` means that another controller writes the ledger now.

    With a ``replica``, an intent must have reached the other machine too; later events may arrive later, because a
    reaper that has the intent finds the rest by listing. ``replica_problem`` is why the last copy did not arrive.
    """

    def __init__(self, events: t.Iterable[LedgerEvent], appender: Appender, replica: SendReplica | None = None) -> None:
        self._events = list(events)
        self._appender = appender
        self._replica = replica
        self.problem = ""
        self.is_overtaken = False
        self.unwritten: list[LedgerEvent] = []
        self.replica_problem = ""

    @staticmethod
    def _clean(event: LedgerEvent) -> LedgerEvent:
        """Return the event without a secret that a provider's message may have quoted."""
        return dataclasses.replace(event, reason=scrub(event.reason)) if event.reason else event

    def record_intent(self, event: LedgerEvent) -> None:
        """Write an intent to disk; raise MusterError when that fails, so that no create call follows."""
        try:
            self._appender.append(event)
        except StateConflictError:
            self.is_overtaken = True
            raise
        self._events.append(event)
        if self._replica is not None:
            try:
                self._replica(self._events)
            except MusterError:
                # Nothing was ordered: the intent must not be awaited as if something had been.
                self.record(
                    dataclasses.replace(event, event="failed", settled=True, reason="not replicated, not ordered")
                )
                raise

    def update_replica(self) -> None:
        """Copy the present state to the other machine, where there is one; a failure is stored as a warning."""
        try:
            if self._replica is not None:
                self._replica(self._events)
        except MusterError as error:
            self.replica_problem = str(error)

    def record(self, event: LedgerEvent) -> None:
        """Add an event. It counts in memory even when the disk refuses it: deleting must continue."""
        event = self._clean(event)
        self._events.append(event)
        try:
            self._appender.append(event)
        except MusterError as error:
            self.problem = self.problem or str(error)
            self.is_overtaken = self.is_overtaken or isinstance(error, StateConflictError)
            self.unwritten.append(event)

    @property
    def events(self) -> tuple[LedgerEvent, ...]:
        """Return every event, earlier ones and those of this call."""
        return tuple(self._events)

    @property
    def leases(self) -> dict[tuple[str, str], Lease]:
        """Return the leases as of now."""
        return fold_events(self._events)

    @property
    def tokens(self) -> frozenset[str]:
        """Return every token that was ever used."""
        return frozenset(event.token for event in self._events)
