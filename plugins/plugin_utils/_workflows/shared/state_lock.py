# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock in a store of state: an item that its holder renews, and that others may take when it is no longer renewed."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import threading
import time
import types
import typing as t
import uuid

from ....module_utils._model.errors import LockHeldError, MusterError
from ....module_utils._model.state_store import StateConflictError, StateStore
from ....module_utils._node import processes

# A holder that was killed is succeeded after this time; a living one renews four times in it.
EXPIRY_S: t.Final = 60.0
_RENEW_S: t.Final = EXPIRY_S / 4


class StoreLock:
    """Holds ``locks/NAME`` of a store while the context lasts.

    Entering raises LockHeldError when another process holds it. ``problem`` says how it was lost.
    """

    def __init__(self, store: StateStore, name: str, title: str, *, renew_s: float = _RENEW_S) -> None:
        self._store, self._item, self._title, self._renew_s = store, f"locks/{name}", title, renew_s
        self._nonce, self._count = uuid.uuid4().hex[:12], 0
        self._version = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.problem = ""
        self._is_taken = False

    def __enter__(self) -> StoreLock:
        self._ended, self.problem = threading.Event(), ""
        self._version = self._acquire()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. In a store that is away it expires."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            if not self.problem:
                try:
                    self._store.delete(self._item, self._version)
                except MusterError as exc:
                    self.problem = str(exc)

    def require_held(self) -> None:
        """Raise MusterError when the lock was lost, StateConflictError when another controller has it."""
        if self.problem:
            kind = StateConflictError if self._is_taken else MusterError
            raise kind(self.problem, "Wait until the other controller has ended, then run this again")

    def _acquire(self) -> str:
        try:
            return self._store.write(self._item, self._content(), None)
        except StateConflictError:
            found = self._store.read(self._item)
        text = found.data.decode("utf-8", "replace") if found else ""
        holder = text.partition(" [")[0] or "another controller"
        if found is not None and (found.age_s > EXPIRY_S or is_dead(text)):
            try:
                return self._store.write(self._item, self._content(), found.version)
            except StateConflictError:
                holder = "another controller"
        raise LockHeldError(
            f"{self._title} is in use by {holder}",
            f"Wait until it has ended; the lock of one that was killed expires after {EXPIRY_S:.0f} s",
        )

    def _content(self) -> bytes:
        # Never twice the same: the version of an object may be a digest of its content.
        self._count += 1
        return f"process {os.getpid()} on {platform.node()} [{_kernel()} {self._nonce}-{self._count}]".encode()

    def _renew(self) -> None:
        renewed = time.monotonic()
        while not self._ended.wait(self._renew_s):
            try:
                self._version = self._store.write(self._item, self._content(), self._version)
                renewed = time.monotonic()
            except StateConflictError:
                self.problem, self._is_taken = f"{self._title}: another controller has taken the lock", True
                return
            except MusterError as exc:
                if time.monotonic() - renewed > EXPIRY_S:
                    self.problem = f"{self._title}: the lock could not be renewed: {exc.message}"
                    return


def is_dead(content: str) -> bool:
    """Return whether a lock's holder was a process of this very kernel and container, and has ended."""
    match = re.fullmatch(r"process (\d+) on .* \[(\S+) \S+\]", content)
    return match is not None and match[2] == _kernel() and processes.start_time(int(match[1])) is None


def _kernel() -> str:
    """Return what tells this boot and this namespace of process numbers from any other, empty where unknown."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "unknown"
