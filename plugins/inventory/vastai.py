# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for Vast.ai: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: vastai
short_description: Instances of Vast.ai
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds every instance of a Vast.ai account, with the record C(muster_node) and variables that begin with C(vastai_).
  - Instances are unprivileged containers, or virtual machines where their image is one of C(vastai/kvm).
  - A new instance may be missing for up to a minute.
  - The file's name must end with C(vastai.yml) or C(vast.yml) (or C(.yaml)).
  - The default of O(connect_with) is V(ssh_direct).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.vastai]
  api_token:
    description:
      - The API key; it may be a template. Without it and O(api_token_file) the environment variable E(VAST_API_KEY)
        is used.
    type: str
  api_token_file:
    description: A file that holds the API key.
    type: path
  select:
    description:
      - Filters that the server applies, by column and operator, for example C(label) with C(eq) and a value (see the
        examples).
      - Computed columns such as the price cannot be used.
    type: dict
    default: {}
extends_documentation_fragment:
  - muster.training._inventory
  - muster.training._api
  - ansible.builtin.constructed
"""

EXAMPLES = r"""
# vast.yml: virtual machines and containers apart, only verified ones
plugin: muster.training.vastai
filters:
  - exclude: vastai_verification != 'verified'
keyed_groups:
  - key: muster_node.kind
    prefix: vast
"""

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..module_utils._secrets.sources import SecretSource
    from ..plugin_utils._inventory.base import InventorySource, MusterInventory
    from ..plugin_utils._providers.connection import ProviderConnection
    from ..plugin_utils._providers.vastai.client import API_URL, VastClient, filter_text
    from ..plugin_utils._providers.vastai.mapping import to_host

TOKEN = SecretSource("api_token", "api_token_file", ("VAST_API_KEY",))


class InventoryModule(MusterInventory):
    """Vast.ai as a source of hosts."""

    NAME = "muster.training.vastai"
    ENDINGS = ("vastai.yml", "vastai.yaml", "vast.yml", "vast.yaml")
    WAYS = ("ssh_direct",)

    def source(self) -> InventorySource:
        client = VastClient(ProviderConnection(self.secret(TOKEN), **self.access()))
        select = filter_text(self.option("select"))
        return InventorySource(
            api=self.option("api_url") or API_URL,
            account=client.account,
            fetch=lambda: client.instances(select),
            to_host=lambda raw: to_host(raw, client.account),
            key=(select,),
        )
