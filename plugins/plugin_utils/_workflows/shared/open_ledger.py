# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of a state home, opened for writing: on this disk, and in the store when the home is in one.

A line that is in the store is known to every controller. An intent is there before the order of its machine: whatever
happens to this controller, another one finds what may bill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
import types
import typing as t

from ....module_utils._model.errors import LockHeldError, MusterError
from ....module_utils._model.ledger import LedgerEvent
from ....module_utils._model.state_store import StateConflictError, StateStore
from ..._provision.ledger.ledger_merge import merge_events
from ..._provision.ledger.ledger_store import LEDGER, LedgerWriter, parse_ledger, read_ledger, replace_ledger
from ..._provision.ledger.machine_store import STORED_AS, MachineStore
from .state_dir import StateHome
from .state_lock import StoreLock

_TRIES = 5


def open_ledger(
    home: StateHome, *, for_deletion: bool = False
) -> contextlib.AbstractContextManager[LedgerWriter | StoredLedger]:
    """Return the only writer of the ledger while the context lasts, here and on all controllers that share a store.

    Entering raises RefusedError with the holder when another one writes. With ``for_deletion`` a store or a disk
    that cannot be written hinders nothing: every ``append`` raises MusterError then, and machines end all the same.
    ``unread`` says then why the store's lines are not known here.
    """
    store = home.store()
    if store is None:
        return LedgerWriter(home.folder, for_deletion=for_deletion)
    return StoredLedger(store, home.folder, for_deletion=for_deletion)


def open_machines(home: StateHome) -> MachineStore:
    """Return the memory of machines, above all clusters of a state home, and of all controllers that share a store."""
    # Late: most state homes are folders, and need neither botocore nor a cluster's client.
    if home.setting.store == "local":
        return MachineStore(home.root)
    from .state_store import open_store

    return MachineStore(home.root, open_store(home.setting, STORED_AS))


@contextlib.contextmanager
def await_ledger(home: StateHome, wait_s: float = 60.0) -> t.Iterator[LedgerWriter | StoredLedger]:
    """Open the ledger as :func:`open_ledger` does; another writer is waited for: hosts of one play come at once."""
    end = time.monotonic() + wait_s
    with contextlib.ExitStack() as stack:
        while True:
            try:
                writer = stack.enter_context(open_ledger(home))
                break
            except LockHeldError:
                if time.monotonic() > end:
                    raise
                # Each look at a store is a write and a read of it.
                time.sleep(0.05 if home.store() is None else 1.0)
        yield writer


class StoredLedger:
    """A ledger whose every line is in a store as well."""

    def __init__(self, store: StateStore, folder: pathlib.Path, *, for_deletion: bool) -> None:
        self._store, self._folder, self._for_deletion = store, folder, for_deletion
        self._lock = StoreLock(store, "ledger", f"the ledger of {folder.name} in {store.title}")
        self._writer = LedgerWriter(folder, for_deletion=for_deletion)
        self._version: str | None = None
        self.unread = ""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> StoredLedger:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._lock)
                # In a context of its own: it replaces the file that a writer has open.
                with LedgerWriter(self._folder, for_deletion=self._for_deletion):
                    self._version = pull_ledger(self._store, self._folder)
            except LockHeldError:
                raise
            except MusterError as exc:
                if not self._for_deletion:
                    raise
                self.unread = str(exc)
            stack.enter_context(self._writer)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._stack.close()

    def append(self, event: LedgerEvent) -> None:
        """Write one event to disk and to the store, or raise MusterError: no create call may follow."""
        self._writer.append(event)
        try:
            if self.unread:
                raise MusterError(self.unread)
            self._lock.require_held()
            self._version = self._store.write(LEDGER, (self._folder / LEDGER).read_bytes(), self._version)
        except MusterError:
            if event.event == "intent":
                # Nothing is ordered now: the line on this disk must not be awaited as if something had been.
                self._writer.append(
                    dataclasses.replace(event, event="failed", settled=True, reason="not stored, not ordered")
                )
            raise


def pull_ledger(store: StateStore, folder: pathlib.Path) -> str | None:
    """Merge the store's ledger with this disk's, on both; return the version that the store has then.

    The caller holds the local ledger (LedgerWriter). Lines that only this disk has, because the store was away when
    they were written, reach it now.
    """
    for _try in range(_TRIES):
        found = store.read(LEDGER)
        stored = parse_ledger(found.data, f"{LEDGER} in {store.title}").events if found else ()
        local = read_ledger(folder).events
        merged = merge_events(stored, local)
        if merged != local:
            replace_ledger(folder, merged)
        if len(merged) == len(stored):
            return found.version if found else None
        with contextlib.suppress(StateConflictError):
            data = "".join(event.line() for event in merged).encode()
            return store.write(LEDGER, data, found.version if found else None)
    raise MusterError(f"the ledger in {store.title} is being written by others all the time", "Run this again")
