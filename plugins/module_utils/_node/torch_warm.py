# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the fork server of a node's ranks (``torch_forkserver.py``) beside torchrun."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import pathlib
import subprocess
import typing as t

from . import files

VARIABLE = "MUSTER_WARM"


def start_fork_server(
    argv: t.Sequence[str], env: t.Mapping[str, str], cwd: str, folder: pathlib.Path, output: t.IO[bytes] | None
) -> dict[str, str]:
    """Start the fork server ``argv``; return the variables by which ranks find it, none when it cannot be started.

    :param env: what torchrun gets: its marker lets the server be killed with everything else of the unit.
    :param folder: where the socket goes; only this user may enter it.
    """
    variables = {VARIABLE: str(files.private_dir(folder) / "socket")}
    try:
        subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**env, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError:
        # Ranks start without it, and torchrun, started by the same interpreter, tells what is wrong.
        return {}
    return variables
