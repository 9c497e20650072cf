# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugins of other collections, for sample sources that name them: they list recorded hosts.

Each is a collection of its own below a folder for ``ANSIBLE_COLLECTIONS_PATH``; ``compose`` and ``groups`` are applied
by Ansible's own ``Constructable``, as those plugins do.
"""

from __future__ import annotations

import pathlib

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "compose"
# Name in a source's ``plugin``: the recorded hosts.
PLUGINS = {
    "amazon.aws.aws_ec2": "aws_ec2",
    "google.cloud.gcp_compute": "gcp",
    "digitalocean.cloud.droplets": "droplets",
    "hetzner.hcloud.hcloud": "hcloud",
}
_PLUGIN = '''
DOCUMENTATION = """
name: {name}
short_description: Recorded hosts
description: Recorded hosts.
options: {{plugin: {{description: Name., type: str, required: true}}}}
extends_documentation_fragment: [ansible.builtin.constructed]
"""
import json, pathlib
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable

class InventoryModule(BaseInventoryPlugin, Constructable):
    NAME = "{full}"

    def verify_file(self, path):
        return path.endswith((".yml", ".yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        for number, variables in enumerate(json.loads(pathlib.Path("{place}").read_text())):
            host = inventory.add_host(f"{prefix}-{{number}}")
            for key, value in variables.items():
                inventory.set_variable(host, key, value)
            strict = self.get_option("strict")
            self._set_composite_vars(self.get_option("compose"), variables, host, strict)
            self._add_host_to_composed_groups(self.get_option("groups"), variables, host, strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host, strict)
'''


def write_collections(folder: pathlib.Path) -> pathlib.Path:
    """Write the collections and return the folder that holds them."""
    for full, recorded in PLUGINS.items():
        namespace, collection, name = full.split(".")
        plugins = folder / "ansible_collections" / namespace / collection / "plugins" / "inventory"
        plugins.mkdir(parents=True)
        place = FIXTURES / f"{recorded}.json"
        text = _PLUGIN.format(name=name, full=full, place=place, prefix=recorded.replace("_", "-"))
        (plugins / f"{name}.py").write_text(text)
    return folder
