# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for CoreWeave: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: coreweave
short_description: Kubernetes clusters and node pools of CoreWeave
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds every cluster of CoreWeave's Kubernetes service, with the record C(muster_node) (of kind C(cluster)) and
    variables that begin with C(coreweave_).
  - An entry is a cluster, no machine. Its connection is C(local), so that plays can talk to its API server from here.
  - The file's name must end with C(coreweave.yml) or C(coreweave.yaml).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.coreweave]
  api_token:
    description:
      - The API access token; it may be a template. Without it and O(api_token_file) the environment variable
        E(COREWEAVE_API_TOKEN) is used.
    type: str
  api_token_file:
    description: A file that holds the API access token.
    type: path
  node_pools:
    description:
      - Whether to ask the API server of each running cluster for its node pools (C(coreweave_node_pools)).
      - Of a cluster whose API server cannot be reached the pools stay null.
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._inventory
  - muster.training._api
  - ansible.builtin.constructed
"""

EXAMPLES = r"""
# coreweave.yml: clusters with their node pools
plugin: muster.training.coreweave
node_pools: true
group: managed_clusters
"""


from ..module_utils._secrets.sources import SecretSource
from ..plugin_utils._inventory.base import InventorySource, MusterInventory
from ..plugin_utils._providers.connection import ProviderConnection
from ..plugin_utils._providers.coreweave.client import API_URL, CoreweaveClient
from ..plugin_utils._providers.coreweave.mapping import to_host

TOKEN = SecretSource("api_token", "api_token_file", ("COREWEAVE_API_TOKEN",))


class InventoryModule(MusterInventory):
    """CoreWeave as a source of clusters."""

    NAME = "muster.training.coreweave"
    ENDINGS = ("coreweave.yml", "coreweave.yaml")

    def source(self) -> InventorySource:
        client = CoreweaveClient(ProviderConnection(self.secret(TOKEN), **self.access()))
        pools = bool(self.option("node_pools"))
        return InventorySource(
            api=self.option("api_url") or API_URL,
            account=client.account,
            fetch=lambda: client.list_clusters(node_pools=pools),
            to_host=lambda raw: to_host(raw, client.account),
            key=(str(pools),),
        )
