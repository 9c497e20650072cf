# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger during one call: intents reach disk and replica first, facts count even when the disk is full."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateConflictError
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.ledger.stored_events import event


class _FullDisk:
    def append(self, event: LedgerEvent) -> None:
        raise MusterError("the disk is full")


def test_a_book_takes_no_intent_that_is_not_on_disk_but_every_fact() -> None:
    book = LedgerSession([event(1)], _FullDisk())
    with pytest.raises(MusterError):
        book.record_intent(event(2))
    assert book.tokens == {event(1).token}
    book.record(event(3, "created"))
    assert event(3).token in book.tokens
    assert book.problem == "the disk is full"
    assert book.unwritten == [event(3, "created")]
    assert not book.is_overtaken


class _Overtaken:
    def append(self, event: LedgerEvent) -> None:
        raise StateConflictError("written by another controller")


def test_a_book_that_another_controller_writes_says_so() -> None:
    for way in ("record", "record_intent"):
        book = LedgerSession([event(1)], _Overtaken())
        if way == "record":
            book.record(event(2))
        else:
            with pytest.raises(StateConflictError):
                book.record_intent(event(2))
        assert book.is_overtaken
