# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs from Debian's packages that tests run for real; installed where root, apt and MUSTER_REQUIRE_LAB allow it."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

_PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
_APT_S = 600


def program(name: str) -> str | None:
    """Return where a program is, also where only root's PATH looks."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + os.pathsep + _PLACES)


def obtain(name: str, package: str) -> str:
    """Return why the program cannot be had, empty when it is there.

    Only a session that must run everything (MUSTER_REQUIRE_LAB=1) may install something on the machine.
    """
    if program(name):
        return ""
    if os.environ.get("MUSTER_REQUIRE_LAB") != "1" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return f"{name} is not installed (Debian: apt-get install {package})"
    with open(pathlib.Path(tempfile.gettempdir()) / "muster-apt.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (["update"], ["install", "--yes", "--no-install-recommends", package]):
            subprocess.run(
                ["apt-get", "--quiet", *words],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                check=False,
                timeout=_APT_S,
            )
    return "" if program(name) else f"apt-get could not install {package} for {name}"
