# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies an SQLite database as it is at one moment while others write to it: copy_sqlite.py SOURCE TARGET.

SQLite's own online backup, in one step: K3s waits for it with its next checkpoint of the log at most. Exit code 3: the
source is not a SQLite database, or this Python has no sqlite3; nothing was written then.
"""

from __future__ import annotations

import os
import sys

_NOT_HERE = 3
_MAGIC = b"SQLite format 3\0"


def main(source: str, target: str) -> int:
    """Copy, and prove the copy."""
    try:
        import sqlite3

        with open(source, "rb") as handle:
            if handle.read(len(_MAGIC)) != _MAGIC:
                return _NOT_HERE
    except (ImportError, OSError):
        return _NOT_HERE
    os.umask(0o077)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    there = sqlite3.connect(f"file:{source}?mode=rw", uri=True, timeout=60)
    copy = sqlite3.connect(target)
    try:
        there.backup(copy)
        # The copy has the log's mode of its source; without a log of its own it is one file.
        copy.execute("PRAGMA journal_mode=DELETE")
        (said,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    finally:
        copy.close()
        there.close()
    if said != "ok":
        print(f"{source}: the copy is not sound: {said}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
