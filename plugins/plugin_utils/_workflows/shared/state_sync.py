# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A state home in a store: its files come before an action works, and go while it works and after it.

The ledger has a way of its own (open_ledger), line by line. Other files are whole: their contents are items, and an
index names the items that count. It is written last and under a condition, so a reader sees a file of before or of
after, and two controllers that change different files lose nothing.

"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import threading
import types
import typing as t
import uuid

from ....module_utils._model.errors import MusterError, RefusedError
from ....module_utils._model.state_store import StateConflictError, StateStore
from ....module_utils._node import files
from ..._provision.ledger.ledger_store import LEDGER, LedgerWriter
from .open_ledger import pull_ledger

INDEX: t.Final = "index"
# What was in the index when this working copy last met it.
_SEEN: t.Final = ".stored.json"
# Logs, fetched files and reports stay where they were made: nodes have the first two, the report is made again.
_PATTERNS: t.Final = (
    "*.json",
    "kubeconfig",
    "known_hosts",
    "bindings/*.json",
    "services/*.json",
    "runs/*/run.json",
    "runs/*/copies.json",
    "runs/*/secret_leases.json",
    "runs/*/events.jsonl",
    "runs/*/metrics.jsonl",
    "runs/*/usage.jsonl",
)
_LARGEST: t.Final = 32 << 20
_PUSH_S: t.Final = 30.0
_TRIES: t.Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class IndexEntry:
    """A file in the store: the digest of its content (SHA-256, hexadecimal), and the item that has it."""

    sha256: str
    item: str


class StateSync:
    """Keeps a working copy and its store alike while the context lasts; ``problems`` has what could not be stored.

    Entering raises MusterError when the store cannot be read: nothing is decided on an old copy, unless it
    ``may_be_away``.
    """

    def __init__(
        self,
        store: StateStore,
        folder: pathlib.Path,
        *,
        is_read_only: bool,
        may_be_away: bool = False,
        push_s: float = _PUSH_S,
    ) -> None:
        self._store, self._folder, self._is_read_only, self._push_s = store, folder, is_read_only, push_s
        self._may_be_away = may_be_away
        self._seen: dict[str, IndexEntry] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.problems: list[str] = []

    def __enter__(self) -> StateSync:
        try:
            self._pull()
        except MusterError as exc:
            if not self._may_be_away:
                raise
            self.problems = [f"this controller's own copy of the state is used: {exc}"]
            return self
        if not self._is_read_only:
            self._thread = threading.Thread(target=self._push_from_time_to_time, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._try_push()

    def _push_from_time_to_time(self) -> None:
        while not self._ended.wait(self._push_s):
            self._try_push()

    def _try_push(self) -> None:
        try:
            self._push()
            self.problems = []
        except (MusterError, OSError) as exc:
            self.problems = [f"the state is on this controller alone, it could not be stored: {exc}"]

    def _pull(self) -> None:
        files.private_dir(self._folder)
        if (self._folder / LEDGER).exists() or self._store.read(LEDGER) is not None:
            # Refused: another process of this controller writes the ledger, and stores what it writes.
            with contextlib.suppress(RefusedError), LedgerWriter(self._folder):
                pull_ledger(self._store, self._folder)
        index, _version = self._read_index()
        known = {name: IndexEntry(**entry) for name, entry in (files.read_json(self._folder / _SEEN) or {}).items()}
        local = self._read_local()
        for name, entry in index.items():
            changed_here = name in local and (name not in known or local[name] != known[name].sha256)
            if local.get(name) == entry.sha256 or (changed_here and known.get(name) == entry):
                continue
            found = self._store.read(entry.item)
            if found is not None and hashlib.sha256(found.data).hexdigest() == entry.sha256:
                place = self._folder / name
                files.private_dir(place.parent)
                files.write_atomic(place, found.data)
        for name in known.keys() - index.keys():
            # Deleted by another controller, and not changed here since.
            if local.get(name) == known[name].sha256:
                (self._folder / name).unlink(missing_ok=True)
        self._remember(index)

    def _push(self) -> None:
        local = self._read_local()
        seen = {name: entry.sha256 for name, entry in self._seen.items()}
        changed = [name for name, digest in local.items() if seen.get(name) != digest]
        gone = self._seen.keys() - local.keys()
        if not changed and not gone:
            return
        made: dict[str, IndexEntry] = {}
        for name in changed:
            data = (self._folder / name).read_bytes()
            entry = IndexEntry(hashlib.sha256(data).hexdigest(), f"files/{uuid.uuid4().hex}")
            self._store.write(entry.item, data, None)
            made[name] = entry
        replaced = self._write_index(made, gone)
        for entry in replaced:
            found = self._store.read(entry.item)
            if found is not None:
                self._store.delete(entry.item, found.version)

    def _write_index(self, made: t.Mapping[str, IndexEntry], gone: t.Collection[str]) -> list[IndexEntry]:
        """Put entries into the index and take others out; return the entries that no longer count."""
        for _try in range(_TRIES):
            index, version = self._read_index()
            replaced = [index[name] for name in {*made, *gone} if name in index]
            wanted = {name: entry for name, entry in {**index, **made}.items() if name not in gone}
            plain = {name: dataclasses.asdict(entry) for name, entry in sorted(wanted.items())}
            with contextlib.suppress(StateConflictError):
                self._store.write(INDEX, json.dumps(plain).encode(), version)
                self._remember(wanted)
                return replaced
        raise MusterError(f"the index in {self._store.title} is being written by others all the time", "Run this again")

    def _read_index(self) -> tuple[dict[str, IndexEntry], str | None]:
        found = self._store.read(INDEX)
        if found is None:
            return {}, None
        try:
            index = {name: IndexEntry(**entry) for name, entry in json.loads(found.data).items()}
            # What others wrote names no place outside this folder.
            return {name: entry for name, entry in index.items() if _is_state_file(name)}, found.version
        except (ValueError, TypeError, AttributeError):
            raise RefusedError(f"the index in {self._store.title} is damaged", "Restore it from a copy") from None

    def _read_local(self) -> dict[str, str]:
        """Return the digests of this working copy's files by relative name."""
        found = {}
        for pattern in _PATTERNS:
            for place in self._folder.glob(pattern):
                if place.name != _SEEN and place.is_file() and place.stat().st_size <= _LARGEST:
                    found[str(place.relative_to(self._folder))] = hashlib.sha256(place.read_bytes()).hexdigest()
        return found

    def _remember(self, index: t.Mapping[str, IndexEntry]) -> None:
        self._seen = dict(index)
        files.write_json(self._folder / _SEEN, {name: dataclasses.asdict(entry) for name, entry in index.items()})


def _is_state_file(name: str) -> bool:
    path = pathlib.PurePosixPath(name)
    return ".." not in path.parts and any(
        len(path.parts) == pattern.count("/") + 1 and path.match(pattern) for pattern in _PATTERNS
    )
