# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger on disk: append-only, one writer, every line on stable storage before the caller continues.

A line is one ``write`` and one ``fsync``. A writer that died in the middle of a line leaves a torn tail: it is
ended with a newline by the next writer, skipped with a warning by every reader, and never read as an empty ledger.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import pwd
import time
import types
import typing as t

from ....module_utils._model.errors import InputError, LockHeldError, MusterError, RefusedError
from ....module_utils._model.ledger import Lease, LedgerEvent, fold_events
from ....module_utils._model.timestamps import format_whole_seconds

LEDGER = "ledger.jsonl"
LOCK = "ledger.lock"
# What is to be done once lines can be written that could not be.
_THEN = ", then run teardown"


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerContent:
    """The content of a ledger file: its events in order and one warning for each line that could not be read."""

    events: tuple[LedgerEvent, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def leases(self) -> dict[tuple[str, str], Lease]:
        """Return the leases by (token, resource)."""
        return fold_events(self.events)


def parse_ledger(data: bytes, name: str = LEDGER) -> LedgerContent:
    """Read the bytes of a ledger. Every readable line counts, because each may be the only trace of a machine.

    Raises InputError when there are lines but none can be read, or when a line has another schema.
    """
    events: list[LedgerEvent] = []
    warnings: list[str] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip(b"\0 \r\t"):
            continue
        where = f"{name}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            kind = "torn" if number >= len(lines) - 1 else "unreadable"
            warnings.append(f"{where}: {kind} line of {len(line)} bytes is ignored")
            continue
        if isinstance(value, dict) and value.get("schema") not in (None, 1):
            LedgerEvent.from_dict(value, where)
        try:
            events.append(LedgerEvent.from_dict(value, where))
        except InputError as error:
            warnings.append(f"{error.message}; the line is ignored")
    if warnings and not events:
        raise InputError(name, "has lines, but none can be read", "Restore it from a copy; do not delete it")
    return LedgerContent(tuple(events), tuple(warnings))


def read_ledger(folder: pathlib.Path) -> LedgerContent:
    """Return the ledger of a cluster's state folder; a file that does not exist is an empty ledger."""
    path = folder / LEDGER
    try:
        return parse_ledger(path.read_bytes(), str(path))
    except FileNotFoundError:
        return LedgerContent()
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "Restore it from a copy") from None


def find_unreadable(folder: pathlib.Path) -> str:
    """Return why a ledger cannot be read and what helps, such as as whom to run; empty where it can, or is none."""
    path = folder / LEDGER
    try:
        path.open("rb").close()
    except PermissionError:
        return f"{path} cannot be read by {_user_name(os.geteuid())}: run this as {_find_owner(path)}, its owner"
    except OSError:
        pass
    try:
        read_ledger(folder)
    except InputError as error:
        return str(error)
    return ""


def _find_owner(path: pathlib.Path) -> str:
    """Return the owner of a file, or of the first folder above it that can be seen."""
    for place in (path, *path.parents):
        try:
            return _user_name(place.stat().st_uid)
        except OSError:
            continue
    return "root"


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def list_other_clusters(folder: pathlib.Path) -> list[Lease]:
    """Return the open leases of machines of the other clusters in the same state home, as far as they can be read."""
    leases: list[Lease] = []
    for path in sorted(folder.parent.glob(f"*/{LEDGER}")):
        if path.parent.name != folder.name:
            with contextlib.suppress(MusterError, OSError):
                leases += (item for item in read_ledger(path.parent).leases.values() if item.open and item.machine)
    return leases


def explain_write(path: pathlib.Path, error: OSError, then: str = "") -> MusterError:
    """Return the error of a ledger that cannot be written, with what helps, and what to do ``then``."""
    fixes = {
        errno.ENOSPC: "Free space",
        errno.EDQUOT: "Free space",
        errno.EROFS: "Mount it for writing",
        errno.EACCES: f"Run this as {_find_owner(path)}, its owner",
        errno.EPERM: f"Run this as {_find_owner(path)}, its owner",
    }
    fix = fixes.get(error.errno or 0, "")
    return MusterError(f"{path} cannot be written ({error.strerror})", f"{fix}{then}" if fix else "")


def _sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_ledger(folder: pathlib.Path, events: t.Iterable[LedgerEvent]) -> None:
    """Replace all events of a ledger, atomically. The caller holds its lock (LedgerWriter)."""
    temporary = folder / f".{LEDGER}.new"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write("".join(event.line() for event in events).encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, folder / LEDGER)
        _sync_folder(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain_write(folder / LEDGER, error) from None


class LedgerWriter:
    """The only writer of a ledger while the context lasts.

    Raises RefusedError on entry when another process holds it; the message names that process. A disk on which
    nothing can be written raises MusterError, except with ``for_deletion``: then every ``append`` raises it, and the
    lock is held as far as the disk allows, because machines that bill must end all the same.
    """

    # All lines are on this disk.
    unread: t.Final = ""

    def __init__(self, folder: pathlib.Path, holder: str = "", *, for_deletion: bool = False) -> None:
        self._folder = folder
        self._for_deletion = for_deletion
        self._problem: MusterError | None = None
        self._holder = holder or f"process {os.getpid()} on {os.uname().nodename}"
        self._lock = -1
        self._file = -1

    def __enter__(self) -> LedgerWriter:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._acquire_lock()
            self._file = os.open(self._folder / LEDGER, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._close_torn_tail()
            _sync_folder(self._folder)
        except OSError as error:
            self.__exit__(None, None, None)
            self._problem = explain_write(self._folder / LEDGER, error, _THEN if self._for_deletion else "")
            if not self._for_deletion:
                raise self._problem from None
            self._lock_unwritable()
        except RefusedError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _lock_unwritable(self) -> None:
        """Hold the lock file of a disk that takes no writing, where there is one."""
        try:
            self._lock = os.open(self._folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            self._take_lock()
        except RefusedError:
            self.__exit__(None, None, None)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise LockHeldError(
                f"the ledger of {self._folder.name} is in use by {holder}",
                "Wait until that process has ended, or stop it",
            ) from None

    def _acquire_lock(self) -> None:
        self._take_lock()
        os.ftruncate(self._lock, 0)
        since = format_whole_seconds(time.time())
        os.pwrite(self._lock, f"{self._holder} since {since}\n".encode(), 0)

    def _close_torn_tail(self) -> None:
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def append(self, event: LedgerEvent) -> None:
        """Write one event to disk, or raise MusterError (disk full, read-only, missing): no create call may follow."""
        if self._problem:
            raise self._problem
        data = event.line().encode()
        try:
            self._close_torn_tail()
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(0, "only a part was written")
            os.fsync(self._file)
        except OSError as error:
            raise explain_write(self._folder / LEDGER, error, _THEN) from None


class Appender(t.Protocol):
    """Stores events in order: a :class:`LedgerWriter`, or its replacement in a test."""

    def append(self, event: LedgerEvent) -> None:
        """Store one event."""
