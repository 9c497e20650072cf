# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH keys of one run of mpirun: its nodes reach each other with them, and they are stored nowhere else."""

from __future__ import annotations

import pathlib

from ...._hosts import ssh_keys
from ...._launch import mpi
from ...._launch.base import NodeSlot, RunContext


def generate_files(folder: pathlib.Path, nodes: tuple[NodeSlot, ...], context: RunContext) -> dict[str, bytes]:
    """Return the files with new keys that each node gets, by name.

    :param folder: the run's folder on the controller.
    """
    pair = ssh_keys.generate_keys(folder)
    return {
        mpi.KEY_FILE: pair.private,
        mpi.HOST_KEY_FILE: pair.host_private,
        mpi.AUTHORIZED_FILE: pair.public,
        mpi.KNOWN_HOSTS_FILE: mpi.known_hosts(nodes, context, pair.host_public).encode(),
    }
