# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for Lambda Cloud: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lambda_cloud
short_description: Instances of Lambda Cloud
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds every instance of a Lambda Cloud account, with the record C(muster_node) and variables that begin with
    C(lambda_).
  - Calls are one second apart, as the API demands.
  - The file's name must end with C(lambda.yml) or C(lambda_cloud.yml) (or C(.yaml)).
  - The default of O(connect_with) is V(public).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.lambda_cloud]
  api_token:
    description:
      - The API key; it may be a template. Without it and O(api_token_file) the environment variable E(LAMBDA_API_KEY)
        is used.
    type: str
  api_token_file:
    description: A file that holds the API key.
    type: path
  cluster_id:
    description: Only instances of this 1-Click Cluster. They get it as C(muster_node.fabric_hint).
    type: str
extends_documentation_fragment:
  - muster.training._inventory
  - muster.training._api
  - ansible.builtin.constructed
seealso:
  - plugin: muster.training.tailscale
    plugin_type: inventory
"""

EXAMPLES = r"""
# lambda.yml: all running instances, grouped by GPU model and region
plugin: muster.training.lambda_cloud
states: [running]
keyed_groups:
  - key: muster_node.gpu.model
    prefix: gpu
  - key: muster_node.region
    prefix: region
"""

from ..plugin_utils._ansible import bytecode

with bytecode.kept():
    from ..module_utils._secrets.sources import SecretSource
    from ..plugin_utils._inventory.base import InventorySource, MusterInventory
    from ..plugin_utils._providers.connection import ProviderConnection
    from ..plugin_utils._providers.lambda_cloud.client import API_URL, LambdaClient
    from ..plugin_utils._providers.lambda_cloud.mapping import to_host

TOKEN = SecretSource("api_token", "api_token_file", ("LAMBDA_API_KEY",))


class InventoryModule(MusterInventory):
    """Lambda Cloud as a source of hosts."""

    NAME = "muster.training.lambda_cloud"
    ENDINGS = ("lambda.yml", "lambda.yaml", "lambda_cloud.yml", "lambda_cloud.yaml")

    def source(self) -> InventorySource:
        client = LambdaClient(ProviderConnection(self.secret(TOKEN), **self.access()))
        cluster = self.option("cluster_id") or ""
        return InventorySource(
            api=self.option("api_url") or API_URL,
            account=client.account,
            fetch=lambda: client.instances(cluster),
            to_host=lambda raw: to_host(raw, client.account),
            key=(cluster,),
        )
