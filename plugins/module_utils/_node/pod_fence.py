# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The single-writer guard: ends an attempt that was replaced by a newer one, and stops a pod from starting twice.

A node without network or kubelet continues to run its pods after the cluster counts them as lost. Attempts that share
their checkpoints share a file that names the newest one; a pod that reads a newer one than its own ends at once without
saving: only the newest attempt may write checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
import typing as t

# The name of the file, beside the folder of the kept logs.
NEWEST = "newest"
_EVERY_S = 2.0


AttemptId = tuple[int, int]


class SingleWriterGuard:
    """Watches the file ``path``. ``attempt_id`` is when the run was submitted, and this pod's attempt since then.

    ``newer_attempt`` becomes the number of the attempt that has started after this one.
    """

    def __init__(self, path: pathlib.Path, attempt_id: AttemptId, say: t.Callable[[str], None]) -> None:
        self.path, self.attempt_id, self.newer_attempt = path, attempt_id, 0
        try:
            newest = read_newest(path)
            if newest < attempt_id:
                _write_newest(path, attempt_id)
        except OSError as exc:
            say(f"{path} cannot be written: {exc.strerror}; this pod would not notice a newer attempt")
            return
        self.newer_attempt = newest[1] if newest > attempt_id else 0
        # A thread of its own: a file system that does not answer must not hold up the pod.
        threading.Thread(target=self._watch, name="fence", daemon=True).start()

    def begin(self, attempt: int) -> None:
        """Record that a later attempt has started in this pod, which continues: Ray restarts workers by itself."""
        attempt_id = self.attempt_id[0], attempt
        with contextlib.suppress(OSError):
            if attempt_id > self.attempt_id >= read_newest(self.path):
                # Before the file, so that the thread does not take it for another pod's.
                self.attempt_id = attempt_id
                _write_newest(self.path, attempt_id)

    def _watch(self) -> None:
        while not self.newer_attempt:
            time.sleep(_EVERY_S)
            newest = read_newest(self.path)
            if newest > self.attempt_id:
                self.newer_attempt = newest[1]


class FencedError(Exception):
    """The pod must not run: it has run before, or a newer attempt has started."""


def guard_start(
    folder: pathlib.Path, attempt_id: AttemptId, pod: str, say: t.Callable[[str], None]
) -> SingleWriterGuard:
    """Return the guard of a pod that may run: for the first time, and as part of the newest attempt.

    :param folder: the folder of the kept logs. :param pod: what tells it from a later pod of its name.
    :raises FencedError: with the reason why it may not.
    """
    if not record_first_start(folder / f"attempt-{attempt_id[1]}" / f"{pod}.started"):
        # A machine with the name of a deleted one starts the pods bound to that one. A new pod of the same name has
        # another uid.
        raise FencedError("this pod has run before, on a machine that no longer exists")
    guard = SingleWriterGuard(folder.parent / NEWEST, attempt_id, say)
    if guard.newer_attempt:
        raise FencedError(f"attempt {guard.newer_attempt} of the run has started")
    return guard


def record_first_start(path: pathlib.Path) -> bool:
    """Create the file ``path``, which is named after a pod; return False when it exists already."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
    except FileExistsError:
        return False
    except OSError:
        # A file that cannot be written proves nothing.
        return True
    return True


def read_newest(path: pathlib.Path) -> AttemptId:
    """Return the newest attempt, (0, 0) when the file is missing or torn."""
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return 0, 0
    numbers = [int(word) for word in words if word.isdecimal()]
    return (numbers[0], numbers[1]) if len(numbers) == len(words) == 2 else (0, 0)


def _write_newest(path: pathlib.Path, attempt_id: AttemptId) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    new.write_text("{} {}\n".format(*attempt_id), encoding="ascii")
    os.replace(new, path)
