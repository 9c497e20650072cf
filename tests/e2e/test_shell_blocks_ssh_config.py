# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader writes the machines of an inventory as an ssh_config file, and ssh reads it."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tests.support.shell_blocks import Reader, own_environment

BLOCKS = ("guide_inventory-1",)


@pytest.mark.parametrize("name", BLOCKS)
def test_ssh_reads_what_the_block_wrote(tmp_path: pathlib.Path, name: str) -> None:
    reader = Reader(tmp_path, own_environment(tmp_path))
    hosts = {"spark-1": {"ansible_host": "192.168.1.31", "ansible_user": "nv"}}
    reader.write("inventory.yml", {"all": {"children": {"muster_nodes": {"hosts": hosts}}}})
    (printed,) = reader.run(name)
    assert f"Include {tmp_path}/muster.ssh_config" in printed
    shown = reader.type("ssh -G -F muster.ssh_config muster-default-spark-1")
    assert "hostname 192.168.1.31\n" in shown and "user nv\n" in shown
