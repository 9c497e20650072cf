# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where notes on machines are kept: lines of a file or of a store, by several writers, damaged or not writable."""

from __future__ import annotations

import concurrent.futures
import pathlib
import threading

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.machine_memory import MachineNote
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateConflictError, StoredItem
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.machine_store import (
    MACHINES,
    MachineStore,
)

NOW = 1_790_000_000.0


def note(host: str | None) -> MachineNote:
    return MachineNote(NOW, "vastai", "gpu_fault", "Xid 79", host)


def test_without_a_file_nothing_is_remembered_and_reading_makes_none(tmp_path: pathlib.Path) -> None:
    memory, problem = MachineStore(tmp_path / "home").read()
    assert not memory.noted and problem == "" and not (tmp_path / "home").exists()


def test_what_is_kept_is_read_and_a_machine_that_is_not_known_is_not_kept(tmp_path: pathlib.Path) -> None:
    store = MachineStore(tmp_path / "home")
    assert store.add(note("m-1")) == "" and store.add(note(None)) == ""
    place = tmp_path / "home" / MACHINES
    assert len(place.read_text().splitlines()) == 1 and place.stat().st_mode & 0o777 == 0o600
    assert store.read()[0].find_host("vastai", "m-1", NOW) is not None


def test_a_torn_line_spoils_no_other(tmp_path: pathlib.Path) -> None:
    store = MachineStore(tmp_path)
    store.add(note("m-1"))
    with (tmp_path / MACHINES).open("a") as file:
        file.write('{"at": "2026-')
    store.add(note("m-2"))
    memory, problem = store.read()
    assert memory.noted == {"vastai:m-1", "vastai:m-2"}
    assert problem.startswith("1 lines of ") and "passed over" in problem


def test_many_writers_lose_no_line(tmp_path: pathlib.Path) -> None:
    stores = [MachineStore(tmp_path) for _number in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: stores[number % 8].add(note(f"m-{number}")), range(200)))
    assert len(stores[0].read()[0].noted) == 200


def test_what_cannot_be_kept_or_read_is_said_and_hinders_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / MACHINES).mkdir()
    store = MachineStore(tmp_path)
    assert "cannot be kept in machines.jsonl" in store.add(note("m-1"))
    memory, problem = store.read()
    assert not memory.noted and problem.startswith("the memory of machines cannot be read: ")


class Store:
    """A store that refuses what was written meanwhile; with ``away`` it does not answer."""

    title = "a store"

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.version, self.away = 0, False
        self._lock = threading.Lock()

    def read(self, name: str) -> StoredItem | None:
        if self.away:
            raise MusterError("a store does not answer")
        assert name == MACHINES
        return StoredItem(self.data, str(self.version), 0.0) if self.data is not None else None

    def write(self, name: str, data: bytes, version: str | None) -> str:
        with self._lock:
            if (version is None) != (self.data is None) or (version is not None and version != str(self.version)):
                raise StateConflictError(f"{name} was written by another controller")
            self.data, self.version = data, self.version + 1
        return str(self.version)

    def delete(self, name: str, version: str) -> None:
        raise AssertionError(name)


def test_controllers_that_share_a_store_lose_no_line(tmp_path: pathlib.Path) -> None:
    store = Store()
    homes = [MachineStore(tmp_path / str(number), store) for number in range(3)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        problems = list(pool.map(lambda number: homes[number].add(note(f"m-{number}")), range(3)))
    assert problems == [""] * 3 and len(homes[0].read()[0].noted) == 3
    assert not any(tmp_path.iterdir())
    store.away = True
    assert "a store does not answer" in homes[0].add(note("m-9")) and "does not answer" in homes[0].read()[1]
