# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory plugin for ssh_config files: documentation and options; the work is in ``plugin_utils``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_config
short_description: Hosts of an ssh_config file, as ssh itself resolves them
version_added: 0.1.0
author: muster.training contributors (@muster-training)
description:
  - Adds the hosts that C(Host) lines of O(path) name, with the record C(muster_node) and variables that begin with
    C(ssh_config_). Patterns are no hosts; what they say of a host counts.
  - Each host is what C(ssh -G) says of it, so that C(Include), C(Match), C(Host *) and the order of lines are as in
    every C(ssh) of yours. Nothing is connected to.
  - C(HostName), C(Port), C(User) and the first C(IdentityFile) become Ansible's variables. C(ProxyJump),
    C(ProxyCommand), C(HostKeyAlias), C(CertificateFile), C(IdentitiesOnly), C(IdentityAgent), C(UserKnownHostsFile),
    C(StrictHostKeyChecking) and more keys become C(ansible_ssh_common_args) where the file sets them.
  - Keys are named by their path and never read. There are no passwords, and a C(ProxyCommand) with one is refused.
  - Hosts whose user is C(git) are left out; they are no machines.
  - NVIDIA Sync and editors keep their devices in such a file. The playbook C(export) writes one.
  - The file's name must end with C(ssh_config.yml) or C(ssh_config.yaml). The default of O(connect_with) is
    V(ssh_direct).
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [muster.training.ssh_config]
  path:
    description:
      - The file.
      - By default it is C(~/.ssh/config), which ssh reads together with that of the system.
    type: path
  hosts:
    description: Shell patterns of the names that are added.
    type: list
    elements: str
    default: ['*']
  ssh_binary:
    description: OpenSSH's client.
    type: str
    default: ssh
extends_documentation_fragment:
  - muster.training._inventory
  - ansible.builtin.constructed
"""

EXAMPLES = r"""
# desk.ssh_config.yml: two machines of ~/.ssh/config
plugin: muster.training.ssh_config
hosts: [spark-*]
groups:
  muster_nodes: muster_reachable

# sync.ssh_config.yml: a file of another program, and only hosts without a jump host
# plugin: muster.training.ssh_config
# path: ~/.config/sync/ssh_config
# filters:
#   - exclude: ssh_config_proxy_jump is not none
"""

from ..module_utils._model.errors import InputError
from ..plugin_utils._inventory.base import InventorySource, MusterInventory
from ..plugin_utils._providers.parsing import JsonObject
from ..plugin_utils._providers.ssh_config import client, mapping


class InventoryModule(MusterInventory):
    """An ssh_config file as a source of hosts."""

    NAME = "muster.training.ssh_config"
    ENDINGS = ("ssh_config.yml", "ssh_config.yaml")
    WAYS = ("ssh_direct",)

    def source(self) -> InventorySource:
        path, patterns = self.option("path") or "", tuple(map(str, self.option("hosts")))

        def fetch() -> list[JsonObject]:
            hosts = client.list_hosts(path, patterns, self.option("ssh_binary"))
            if not hosts:
                problem = f"has no Host line with a name that fits {', '.join(patterns)}"
                raise InputError(path or "~/.ssh/config", problem, "Add one to the file, or correct hosts")
            return hosts

        return InventorySource(path or "~/.ssh/config", "", fetch, mapping.to_host, patterns)
