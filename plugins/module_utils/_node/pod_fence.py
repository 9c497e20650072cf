# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps an attempt that was given up from going on beside the next one, and a pod from starting twice.

A node without network or kubelet runs its pods on after the cluster has taken them for lost. Attempts that share their
checkpoints share a file that says which is the newest one; a pod that reads of a newer one than its own ends at once,
without saving: the checkpoints are no longer its own.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
import typing as t

# Beside the folder of the kept logs.
NEWEST = "newest"
_EVERY_S = 2.0


AttemptId = tuple[int, int]


class SingleWriterGuard:
    """The file ``place`` and which life of the run this pod is: when the run was submitted, and the attempt since.

    ``passed`` becomes the number of the attempt that has begun after this one.
    """

    def __init__(self, place: pathlib.Path, life: AttemptId, say: t.Callable[[str], None]) -> None:
        self.place, self.life, self.passed = place, life, 0
        try:
            newest = read_newest(place)
            if newest < life:
                _write_newest(place, life)
        except OSError as exc:
            say(f"{place} cannot be written: {exc.strerror}; an attempt that is given up would not notice it")
            return
        self.passed = newest[1] if newest > life else 0
        # A thread of its own: a file system that does not answer must not hold up the pod.
        threading.Thread(target=self._watch, name="fence", daemon=True).start()

    def begin(self, attempt: int) -> None:
        """Say that a later attempt has begun in this very pod, which goes on: Ray starts workers again by itself."""
        life = self.life[0], attempt
        with contextlib.suppress(OSError):
            if life > self.life >= read_newest(self.place):
                # First, so that the own word is not taken for another's.
                self.life = life
                _write_newest(self.place, life)

    def _watch(self) -> None:
        while not self.passed:
            time.sleep(_EVERY_S)
            newest = read_newest(self.place)
            if newest > self.life:
                self.passed = newest[1]


def record_first_start(place: pathlib.Path) -> bool:
    """Return whether ``place``, which is named after a pod, was not there yet, and make it."""
    try:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
    except FileExistsError:
        return False
    except OSError:
        # What cannot be written proves nothing.
        return True
    return True


def read_newest(place: pathlib.Path) -> AttemptId:
    """Return the newest life, (0, 0) when there is none or the file is torn."""
    try:
        words = place.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return 0, 0
    numbers = [int(word) for word in words if word.isdecimal()]
    return (numbers[0], numbers[1]) if len(numbers) == len(words) == 2 else (0, 0)


def _write_newest(place: pathlib.Path, life: AttemptId) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(f".{place.name}.{os.getpid()}.{time.monotonic_ns()}")
    new.write_text("{} {}\n".format(*life), encoding="ascii")
    os.replace(new, place)
