# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for RunPod: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: runpod
short_description: Pods and Instant Clusters of RunPod
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds every pod of a RunPod account, members of Instant Clusters too, with the record C(muster_node) and variables
    that begin with C(runpod_). It uses REST v2.
  - Pods are unprivileged containers. They cannot run K3s; jobs reach them over SSH.
  - A pod has an SSH address only while it runs and if it exposes C(22/tcp); until then it is added without one.
  - The file's name must end with C(runpod.yml) or C(runpod.yaml).
  - The default of O(connect_with) is V(ssh_direct).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.runpod]
  api_token:
    description:
      - The API key; it may be a template. Without it and O(api_token_file) the environment variable E(RUNPOD_API_KEY)
        is used.
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
# runpod.yml: one group for each Instant Cluster, ranks as a variable
plugin: muster.training.runpod
known_hosts_dir: ~/.local/state/muster/lab/known_hosts
groups:
  muster_nodes: muster_reachable
compose:
  node_rank: runpod_cluster_rank
keyed_groups:
  - key: runpod_cluster_id
    prefix: cluster
"""


from ..module_utils._secrets.sources import SecretSource
from ..plugin_utils._inventory.base import InventorySource, MusterInventory
from ..plugin_utils._providers.connection import ProviderConnection
from ..plugin_utils._providers.runpod.client import API_URL, RunpodClient
from ..plugin_utils._providers.runpod.mapping import to_host

TOKEN = SecretSource("api_token", "api_token_file", ("RUNPOD_API_KEY",))


class InventoryModule(MusterInventory):
    """RunPod as a source of hosts."""

    NAME = "muster.training.runpod"
    ENDINGS = ("runpod.yml", "runpod.yaml")
    WAYS = ("ssh_direct",)

    def source(self) -> InventorySource:
        client = RunpodClient(ProviderConnection(self.secret(TOKEN), **self.access()))
        return InventorySource(
            api=self.option("api_url") or API_URL,
            account=client.account,
            fetch=client.list_pods,
            to_host=lambda raw: to_host(raw, client.account),
        )
