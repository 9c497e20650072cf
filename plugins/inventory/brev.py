# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for NVIDIA Brev: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: brev
short_description: Instances and own nodes of NVIDIA Brev
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds what C(brev ls --json) lists, with the record C(muster_node) and variables that begin with C(brev_). How each
    is reached is read from the file that C(brev refresh) writes (C(~/.brev/ssh_config)), as C(ssh -G) resolves it.
  - Brev has no public API, so its own client is asked, with the login that it has. Nothing is created, started or
    deleted; what is rented there is not in a ledger, and C(teardown) does not end it.
  - A machine that the file does not name is added without an address; run C(brev refresh). How many GPUs a machine has
    and what it costs the client does not say.
  - The file's name must end with C(brev.yml) or C(brev.yaml). The default of O(connect_with) is V(ssh_direct).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.brev]
  org:
    description: The organization. The default is the current one of Brev's client.
    type: str
  ssh_config:
    description: The ssh_config file of Brev's client. The default is C(~/.brev/ssh_config).
    type: path
  brev_binary:
    description: Brev's client.
    type: str
    default: brev
  ssh_binary:
    description: OpenSSH's client.
    type: str
    default: ssh
extends_documentation_fragment:
  - muster.training._inventory
  - ansible.builtin.constructed
"""

EXAMPLES = r"""
# brev.yml: machines that run, as nodes
plugin: muster.training.brev
groups:
  muster_nodes: muster_reachable
"""

from ..plugin_utils._inventory.base import InventorySource, MusterInventory
from ..plugin_utils._providers.brev import client, mapping
from ..plugin_utils._providers.parsing import JsonObject


class InventoryModule(MusterInventory):
    """Brev's client as a source of hosts."""

    NAME = "muster.training.brev"
    ENDINGS = ("brev.yml", "brev.yaml")
    WAYS = ("ssh_direct",)

    def source(self) -> InventorySource:
        org, file = str(self.option("org") or ""), str(self.option("ssh_config") or "")
        binary, ssh_binary = self.option("brev_binary"), self.option("ssh_binary")

        def fetch() -> list[JsonObject]:
            return client.list_machines(org, file, binary, ssh_binary)

        return InventorySource(client.NAME, org, fetch, mapping.to_host, (file,))
