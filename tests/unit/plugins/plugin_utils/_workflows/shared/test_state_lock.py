# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock in a store: one holder, renewed while it lives, taken over when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateConflictError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import state_lock
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_lock import (
    EXPIRY_S,
    LockHeldError,
    StoreLock,
    is_dead,
)
from ansible_collections.muster.training.tests.support.memory_state import MemoryState

ITEM = "locks/ledger"


def until(true: object) -> None:
    end = time.monotonic() + 10
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_lock_has_one_holder_who_is_named() -> None:
    store = MemoryState()
    refusal = f"the ledger of lab is in use by process {os.getpid()} on"
    with StoreLock(store, "ledger", "the ledger of lab"), pytest.raises(LockHeldError, match=refusal):
        StoreLock(store, "ledger", "the ledger of lab").__enter__()
    assert ITEM not in store.items
    with StoreLock(store, "ledger", "the ledger of lab"):
        pass


def test_of_many_that_come_at_once_one_gets_it() -> None:
    store, held, refused = MemoryState(), [], []
    gate = threading.Barrier(8)

    def come() -> None:
        gate.wait()
        try:
            held.append(StoreLock(store, "x", "x").__enter__())
        except LockHeldError as exc:
            refused.append(exc)

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) == 1 and len(refused) == 7
    held[0].close()


def test_a_lock_that_is_no_longer_renewed_is_taken_over() -> None:
    store = MemoryState(items={ITEM: (b"process 1 on other [boot/pid:[1] a-1]", "v")}, ages={ITEM: EXPIRY_S - 1})
    with pytest.raises(LockHeldError, match="process 1 on other"):
        StoreLock(store, "ledger", "the ledger").__enter__()
    store.ages[ITEM] = EXPIRY_S + 1
    with StoreLock(store, "ledger", "the ledger"):
        assert b"process 1 on other" not in store.items[ITEM][0]


def test_a_process_of_this_machine_that_has_ended_holds_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    ended, kernel = int(done.stdout), state_lock._kernel()
    assert is_dead(f"process {ended} on here [{kernel} n-1]")
    assert not is_dead(f"process {os.getpid()} on here [{kernel} n-1]")
    assert not is_dead(f"process {ended} on here [another-boot/pid:[1] n-1]") and not is_dead("somebody")
    zombie = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert zombie.stdout is not None and zombie.stdout.read() == b""
    # It has ended, and nobody has asked how: containers whose first process does not ask keep such processes.
    until(lambda: is_dead(f"process {zombie.pid} on here [{kernel} n-1]"))
    zombie.wait()
    store = MemoryState(items={ITEM: (f"process {ended} on here [{kernel} n-1]".encode(), "v")})
    with StoreLock(store, "ledger", "the ledger"):
        pass


def test_a_held_lock_is_renewed() -> None:
    store = MemoryState()
    with StoreLock(store, "ledger", "the ledger", renew_s=0.01) as lock:
        first = store.items[ITEM]
        until(lambda: store.items[ITEM] != first)
        lock.require_held()
    assert ITEM not in store.items


def test_a_lost_lock_is_said_and_the_new_holders_is_left() -> None:
    store = MemoryState()
    with StoreLock(store, "ledger", "the ledger", renew_s=0.01) as lock:
        store.items[ITEM] = (b"process 9 on other [k n-1]", "theirs")
        until(lambda: lock.problem)
        with pytest.raises(StateConflictError, match="another controller has taken the lock"):
            lock.require_held()
    assert store.items[ITEM][1] == "theirs"


def test_a_store_that_is_away_for_a_moment_loses_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryState()
    with StoreLock(store, "ledger", "the ledger", renew_s=0.01) as lock:
        store.away = True
        time.sleep(0.05)
        lock.require_held()
        monkeypatch.setattr(state_lock, "EXPIRY_S", 0.0)
        until(lambda: "could not be renewed" in lock.problem)
        store.away = False
