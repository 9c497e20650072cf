# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for Shadeform: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: shadeform
short_description: Instances and clusters rented through Shadeform
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds every instance of a Shadeform account, members of clusters too, with the record C(muster_node) and variables
    that begin with C(shadeform_).
  - Whether an instance is a virtual machine, a container or a whole machine is not in the listing, so
    C(muster_node.kind) is null until the preflight has looked.
  - The file's name must end with C(shadeform.yml) or C(shadeform.yaml).
  - The default of O(connect_with) is V(ssh_direct).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.shadeform]
  api_token:
    description:
      - The API key; it may be a template. Without it and O(api_token_file) the environment variable
        E(SHADEFORM_API_KEY) is used.
    type: str
  api_token_file:
    description: A file that holds the API key.
    type: path
extends_documentation_fragment:
  - muster.training._inventory
  - muster.training._api
  - ansible.builtin.constructed
"""

EXAMPLES = r"""
# shadeform.yml: grouped by the cloud behind Shadeform
plugin: muster.training.shadeform
keyed_groups:
  - key: shadeform_cloud
    prefix: cloud
"""

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..module_utils._secrets.sources import SecretSource
    from ..plugin_utils._inventory.base import InventorySource, MusterInventory
    from ..plugin_utils._providers.connection import ProviderConnection
    from ..plugin_utils._providers.shadeform.client import API_URL, ShadeformClient
    from ..plugin_utils._providers.shadeform.mapping import to_host

TOKEN = SecretSource("api_token", "api_token_file", ("SHADEFORM_API_KEY",))


class InventoryModule(MusterInventory):
    """Shadeform as a source of hosts."""

    NAME = "muster.training.shadeform"
    ENDINGS = ("shadeform.yml", "shadeform.yaml")
    WAYS = ("ssh_direct",)

    def source(self) -> InventorySource:
        client = ShadeformClient(ProviderConnection(self.secret(TOKEN), **self.access()))
        return InventorySource(
            api=self.option("api_url") or API_URL,
            account=client.account,
            fetch=client.instances,
            to_host=lambda raw: to_host(raw, client.account),
        )
