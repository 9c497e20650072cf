# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the node's system."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import subprocess
import typing as t

_COMMAND_S = 60


class CommandError(OSError):
    """A command failed. ``said``: the lines of its output, those of standard error where there are any."""

    def __init__(self, text: str, said: list[str]) -> None:
        super().__init__(text)
        self.said = said


def run(*argv: str, check: bool = True, limit_s: float = _COMMAND_S) -> str:
    """Run a command of the system and return its output; OSError says how it failed."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    environment = {**os.environ, "LC_ALL": "C", "PATH": path}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, env=environment, check=False)
    except FileNotFoundError as exc:
        if not check:
            return ""
        raise OSError(f"{argv[0]} is not there") from exc
    except subprocess.TimeoutExpired as exc:
        raise OSError(f"{' '.join(argv[:2])} did not end within {limit_s:.0f} s") from exc
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        raise CommandError(f"{' '.join(argv[:3])} failed: {said[-1][:300]}", said)
    return done.stdout


def read_unit(unit: str) -> dict[str, t.Any]:
    """Return ``{active, enabled, restarts}`` of a unit of systemd, as of one that is stopped where there is none."""
    text = run("systemctl", "show", unit, "--property=ActiveState,UnitFileState,NRestarts", check=False)
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    return {
        "active": found.get("ActiveState", ""),
        "enabled": found.get("UnitFileState") == "enabled",
        "restarts": int(found.get("NRestarts") or 0),
    }
