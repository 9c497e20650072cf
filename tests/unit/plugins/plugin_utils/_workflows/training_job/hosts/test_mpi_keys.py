# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a run of mpirun: new ones each time, for its nodes alone, and none of them stays on the controller."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._launch import mpi
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import NodeSlot, RunContext
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import mpi_keys


def test_a_run_gets_keys_of_its_own_and_the_controller_keeps_none(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "runs" / "r-1"
    folder.mkdir(parents=True)
    nodes = tuple(NodeSlot(name, rank, f"10.0.0.{rank}", None, "python3", "/run") for rank, name in enumerate("ab", 1))
    context = RunContext("r-1", 25_000, 1, None, "")
    first, second = (mpi_keys.generate_files(folder, nodes, context) for _ in range(2))
    assert set(first) == {mpi.KEY_FILE, mpi.HOST_KEY_FILE, mpi.AUTHORIZED_FILE, mpi.KNOWN_HOSTS_FILE}
    assert b"PRIVATE KEY" in first[mpi.KEY_FILE] and first[mpi.KEY_FILE] != first[mpi.HOST_KEY_FILE]
    assert first[mpi.KEY_FILE] != second[mpi.KEY_FILE]
    known = first[mpi.KNOWN_HOSTS_FILE].decode().splitlines()
    assert [line.split()[0] for line in known] == [f"[{node.address}]:{mpi.ssh_port(context)}" for node in nodes]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
