# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks that are started again begin when the file system of their checkpoints is mounted, as it was at first.

Where its program or server was lost, its place is an empty folder of the node's own disk for as long: a program would
begin from nothing there.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import time
import typing as t

_NOTE: t.Final = "checkpoint-mount"
# A unit of systemd mounts again within seconds.
_WAIT_S: t.Final = 30.0
_AGAIN_S: t.Final = 0.2


def find_mount(folder: str) -> str:
    """Return where the file system of a folder is mounted, which may not exist yet."""
    place = os.path.realpath(folder)
    while not os.path.ismount(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return place


def pass_gate(run: pathlib.Path, folder: str, first: bool) -> str:
    """Note the mount in the run's folder at first; in later starts wait for it, and return why in vain."""
    note = run / _NOTE
    try:
        if first:
            part = note.with_name(f"{_NOTE}.{os.getpid()}")
            part.write_text(find_mount(folder))
            part.replace(note)
            return ""
        place = note.read_text()
    except OSError:
        # A node that joins later, and a disk without room.
        return ""
    until = time.monotonic() + _WAIT_S
    while not os.path.ismount(place):
        if time.monotonic() >= until:
            return (
                f"{place}, where the checkpoints of the start before are, is not mounted after {_WAIT_S:.0f} s: this "
                "one would begin from nothing on another disk. Look at its unit and server, and run `train` again"
            )
        time.sleep(_AGAIN_S)
    return ""
