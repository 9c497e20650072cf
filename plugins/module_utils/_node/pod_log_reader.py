# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the logs that earlier attempts kept beside their checkpoints, after their pods were deleted.

Marked lines are printed as they are; a program's output is printed as marked lines of the stream ``kept``.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t

from .pod_log import MARK

# Bytes per file; a node keeps no more than some tens of MiB of a container's log.
_MOST = 1 << 20
_PLACE = re.compile(r"attempt-([0-9]+)/([0-9]+|-1)-(.+)\.(log|jsonl)\Z")


def main(spec: dict[str, t.Any], program: pathlib.Path) -> int:
    """Print all kept logs; return 0, also when there are none."""
    folder = pathlib.Path(spec["keep_logs"])
    for path in sorted(folder.glob("attempt-*/*")):
        match = _PLACE.search(str(path))
        if match:
            _print(path, int(match.group(1)), match.group(3), match.group(4) == "jsonl")
    return 0


def _print(path: pathlib.Path, attempt: int, node: str, marked: bool) -> None:
    for line in _lines(path):
        if not marked:
            line = json.dumps({"stream": "kept", "node": node, "attempt": attempt, "data": line})
        print(f"{MARK}{line}", flush=True)


def _lines(path: pathlib.Path) -> list[str]:
    """Return the last whole lines of a file."""
    try:
        with open(path, "rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, size - _MOST))
            raw = handle.read()
    except OSError:
        return []
    lines = raw.decode(errors="replace").split("\n")
    return lines[1 if size > _MOST else 0 : -1]
