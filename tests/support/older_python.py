# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The oldest Python that nodes may have, of those on this machine: they seldom have that of the controller."""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess
import sys

MINOR = range(10, sys.version_info[1])


@functools.cache
def find_older() -> str | None:
    """Return an interpreter from 3.10 on that is older than this one, None where there is none."""
    kept = pathlib.Path.home() / ".pyenv" / "versions"
    for minor in MINOR:
        named = [str(place) for place in sorted(kept.glob(f"3.{minor}.*/bin/python3"))]
        system = [shutil.which(f"python3.{minor}"), "/usr/bin/python3"]
        for program in filter(None, [*system, *named]):
            if _read_minor(program) == minor:
                return program
    return None


@functools.cache
def _read_minor(program: str) -> int | None:
    try:
        argv = [program, "-I", "-S", "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return None
    major, _blank, minor = done.stdout.strip().partition(" ")
    return int(minor) if major == "3" and minor.isdecimal() else None
