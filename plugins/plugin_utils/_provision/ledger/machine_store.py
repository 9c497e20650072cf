# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the memory of machines is kept, above all clusters of a state home: a file, or an item of its store.

It helps to choose, and nothing depends on it: what cannot be read or written is said, and machines are rented all the
same.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib

from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.machine_memory import MachineMemory, MachineNote, recall
from ....module_utils._model.state_store import StateConflictError, StateStore

MACHINES = "machines.jsonl"
# In the place of a cluster in a store: none can have a dot in its name.
STORED_AS = "machines.all"
# Lines that are kept: each is of one fault, and the longest counts for 90 days.
_MOST_LINES = 5000
_TRIES = 8


class MachineStore:
    """The notes on machines, of all controllers where the state home is in a store.

    :param root: the state home's folder. :param store: that of the notes, None where the folder is the state home.
    """

    def __init__(self, root: pathlib.Path, store: StateStore | None = None) -> None:
        self._path, self._store = root / MACHINES, store

    def read(self) -> tuple[MachineMemory, str]:
        """Return what the notes come to, and why they, or some of them, could not be read; empty where all were."""
        try:
            data = self._read_bytes()
        except (MusterError, OSError) as exc:
            return MachineMemory(), f"the memory of machines cannot be read: {_explain(exc)}"
        notes, wrong = [], 0
        for number, line in enumerate(data.splitlines(), 1):
            try:
                notes.append(MachineNote.from_dict(json.loads(line), f"{MACHINES}:{number}"))
            except (ValueError, RecursionError, InputError):
                wrong += 1
        problem = f"{wrong} lines of {self._path} are no notes on machines and are passed over" if wrong else ""
        return recall(notes), problem

    def add(self, note: MachineNote) -> str:
        """Keep a note; return why that failed, empty where it did not. Of a machine that is not known none is kept."""
        if not note.is_known:
            return ""
        line = json.dumps(note.to_dict(), sort_keys=True).encode() + b"\n"
        try:
            if self._store is None:
                self._append(line)
            else:
                self._append_stored(self._store, line)
        except (MusterError, OSError) as exc:
            return f"what was wrong with a machine cannot be kept in {MACHINES}: {_explain(exc)}"
        return ""

    def _read_bytes(self) -> bytes:
        if self._store is not None:
            item = self._store.read(MACHINES)
            return item.data if item is not None else b""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            # A writer that died within a line.
            torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            file.write((b"\n" if torn else b"") + line)
            os.fsync(file.fileno())

    @staticmethod
    def _append_stored(store: StateStore, line: bytes) -> None:
        for number in range(_TRIES):
            item = store.read(MACHINES)
            before = item.data.splitlines(keepends=True)[-_MOST_LINES:] if item is not None else []
            try:
                store.write(MACHINES, b"".join([*before, line]), item.version if item is not None else None)
            except StateConflictError:
                # Another controller has written one meanwhile.
                if number == _TRIES - 1:
                    raise
                continue
            return


def _explain(exc: Exception) -> str:
    return str(getattr(exc, "strerror", None) or exc)
