# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of ``guide_mesh`` types its shell blocks on the machines of ``test_mesh_keys``: a real headscale, no containers."""

from __future__ import annotations

import json
import os

from ansible_collections.muster.training.tests.lab.test_mesh_keys import World, world
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, own_environment

__all__ = ["world"]

BLOCKS = ("guide_mesh-0", "guide_mesh-1")


def test_all_machines_come_into_the_mesh_and_leave_it(world: World) -> None:
    inventory = json.loads((world.folder / "inventory.json").read_text())
    # What a page cannot know; the tags are in its command.
    inventory["muster_nodes"]["vars"] = {key: value for key, value in world.values.items() if key != "mesh_tags"}
    home = world.folder / "home"
    home.mkdir()
    reader = Reader(world.folder, own_environment(home, ANSIBLE_CONFIG=os.fspath(world.folder / "ansible.cfg")))
    reader.write("inventory.yml", inventory)
    (joined,) = reader.run(BLOCKS[0])
    assert world.tailnet.names() == sorted(world.tailnet.machines) and joined.count(", direct") == 3, joined
    reader.run(BLOCKS[1])
    eventually(lambda: world.tailnet.names(online=True) == [], "the machines to be gone")
    assert world.keys.alive() == []
