# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The empty folder that sshd wants when root runs it, which a machine without an SSH service has not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import tempfile
from collections.abc import Iterator

FOLDER = pathlib.Path("/run/sshd")


@contextlib.contextmanager
def folder() -> Iterator[None]:
    """Let sshd have its folder meanwhile. Several processes may ask; the last one removes what one of them made."""
    if os.geteuid() != 0:
        yield
        return
    place = pathlib.Path(tempfile.gettempdir())
    ours = place / "muster-sshd-folder"
    with (place / "muster-sshd.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileExistsError):
            FOLDER.mkdir(mode=0o755)
            ours.touch()
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if ours.exists():
                    ours.unlink()
                    FOLDER.rmdir()
