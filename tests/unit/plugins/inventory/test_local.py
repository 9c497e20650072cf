# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory of local nodes: loopback addresses with complete node records."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.inventory import local as subject
from ansible_collections.muster.training.plugins.module_utils._model.node import Node


class Plugin(subject.InventoryModule):
    """The plugin with options that a test sets instead of a file."""

    def __init__(self, **options: t.Any) -> None:
        super().__init__()
        self.options = options

    def _read_config_data(self, path: str) -> None:
        """Nothing to read."""

    def get_option(self, option: str, hostvars: t.Any = None) -> t.Any:
        return self.options[option]


def test_nodes_have_addresses_of_loopback_and_whole_records(tmp_path: pathlib.Path) -> None:
    inventory = InventoryData()
    plugin = Plugin(nodes=3, prefix="box", connection="local", path=str(tmp_path))
    plugin.parse(inventory, DataLoader(), str(tmp_path / "nodes.muster_local.yml"))
    hosts = inventory.groups["muster_nodes"].get_hosts()
    assert [host.name for host in hosts] == ["box1", "box2", "box3"]
    addresses = [host.vars["ansible_host"] for host in hosts]
    assert len(set(addresses)) == 3 and all(address.startswith("127.") for address in addresses)
    assert {host.vars["ansible_python_interpreter"] for host in hosts} == {sys.executable}
    nodes = [Node.from_dict(host.vars["muster_node"], "muster_node") for host in hosts]
    assert [node.id for node in nodes] == ["local/box1", "local/box2", "local/box3"]
    assert {node.fabric_hint for node in nodes} == {"loopback"}


@pytest.mark.parametrize(
    ("name", "mine"), [("a.muster_local.yml", True), ("a.muster_local.yaml", True), ("a.yml", False)]
)
def test_files_are_known_by_their_names(tmp_path: pathlib.Path, name: str, mine: bool) -> None:
    (tmp_path / name).write_text("plugin: muster.training.local\n")
    assert Plugin().verify_file(str(tmp_path / name)) is mine
