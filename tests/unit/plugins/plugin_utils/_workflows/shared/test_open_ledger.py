# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger in a store: every line before its order, one writer on all controllers, no line lost on either side."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LEDGER,
    LedgerWriter,
    parse_ledger,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.open_ledger import (
    StoredLedger,
    open_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.memory_state import MemoryState


def event(token: str, kind: str = "intent", at: str = "2026-01-01T00:00:00Z") -> LedgerEvent:
    return LedgerEvent(
        at=at,
        event=kind,
        token=token,
        cluster="lab",
        pool="p",
        provider="runpod",
        account="a",
        resource="instance",
        name=f"n-{token}",
    )  # type: ignore[arg-type]


def opened(store: MemoryState, folder: pathlib.Path, for_deletion: bool = False) -> StoredLedger:
    folder.mkdir(parents=True, exist_ok=True)
    return StoredLedger(store, folder, for_deletion=for_deletion)


def tokens(store: MemoryState) -> list[str]:
    return [item.token for item in parse_ledger(store.items[LEDGER][0]).events]


def test_a_local_state_home_has_the_writer_of_its_disk(tmp_path: pathlib.Path) -> None:
    assert isinstance(open_ledger(StateHome({"path": str(tmp_path)}, "lab")), LedgerWriter)


def test_a_line_is_in_the_store_before_the_caller_goes_on(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with opened(store, tmp_path / "a") as ledger:
        ledger.append(event("10000001"))
        assert tokens(store) == ["10000001"]
        ledger.append(event("10000001", "created"))
        assert len(tokens(store)) == 2
    with opened(store, tmp_path / "b"):
        assert len(read_ledger(tmp_path / "b").events) == 2


def test_one_controller_writes_at_a_time(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with (
        opened(store, tmp_path / "a"),
        pytest.raises(RefusedError, match="the ledger of b in bucket state.* is in use by"),
    ):
        opened(store, tmp_path / "b").__enter__()
    with opened(store, tmp_path / "b"):
        pass


def test_an_intent_that_is_not_stored_is_no_order(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with opened(store, tmp_path) as ledger:
        session = LedgerSession((), ledger)
        store.away = True
        with pytest.raises(MusterError, match="does not answer"):
            session.record_intent(event("10000001"))
        store.away = False
    lease = next(iter(read_ledger(tmp_path).leases.values()))
    assert lease.state == "failed" and lease.settled


def test_a_writer_that_somebody_overtook_orders_nothing(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with opened(store, tmp_path) as ledger:
        ledger.append(event("10000001"))
        store.items[LEDGER] = (event("20000002").line().encode(), "theirs")
        with pytest.raises(MusterError, match="written by another controller"):
            ledger.append(event("30000003"))
    assert tokens(store) == ["20000002"]


def test_what_only_one_disk_has_reaches_the_store(tmp_path: pathlib.Path) -> None:
    store = MemoryState()
    with LedgerWriter(tmp_path) as writer:
        writer.append(event("10000001"))
    with opened(store, tmp_path):
        assert tokens(store) == ["10000001"]
    writes = store.writes
    with opened(store, tmp_path):
        pass
    # The lock alone: a ledger that is the same is not written.
    assert store.writes == writes + 1


def test_endings_need_no_store(tmp_path: pathlib.Path) -> None:
    store = MemoryState(away=True)
    with pytest.raises(MusterError, match="does not answer"):
        opened(store, tmp_path).__enter__()
    with opened(store, tmp_path, for_deletion=True) as ledger:
        session = LedgerSession((), ledger)
        session.record(event("10000001", "deleted"))
        assert "does not answer" in session.problem
    assert len(read_ledger(tmp_path).events) == 1
