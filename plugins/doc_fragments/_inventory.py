# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that all inventory plugins of the collection share. Private; it may change without notice."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that :class:`plugin_utils._inventory.base.MusterInventory` reads."""

    DOCUMENTATION = r"""
options:
  connect_with:
    description:
      - How Ansible reaches a host, in order of preference. The first way that a host has is taken.
      - V(mesh) is its address on the tailnet, V(magicdns) its name there, V(public) and V(private) are addresses
        that the provider gave it, V(ssh_direct) is the SSH address and port that the provider publishes.
      - Each plugin has its own default.
    type: list
    elements: str
    choices: [mesh, magicdns, public, private, ssh_direct]
  states:
    description:
      - Hosts in these states (C(muster_node.state)) are added. Machines that are gone are left out by default.
    type: list
    elements: str
    choices: [creating, running, stopped, offline, failed, gone, unknown]
    default: [creating, running, stopped, offline, failed, unknown]
  filters:
    description:
      - Which hosts are added. Each entry has one key, C(include) or C(exclude), with a Jinja expression as in
        P(ansible.builtin.constructed#inventory).
      - The first entry whose expression is true decides. A host that none decides on is added.
      - An expression that cannot be evaluated is an error.
    type: list
    elements: dict
    default: []
  hostname:
    description:
      - A Jinja expression for the inventory name. The default is the provider's name for the machine.
      - Names are made valid and unique. The provider's name stays in C(muster_node.name).
    type: str
  group:
    description: A group for all hosts of this source.
    type: str
  known_hosts_dir:
    description:
      - A folder in which each rented machine gets a file of its own for its SSH host keys.
      - Providers assign the addresses and ports of terminated machines to other customers.
    type: path
  cache_fresh_s:
    description:
      - Answers younger than this many seconds are used without asking the provider.
      - C(--flush-cache) and C(meta=refresh_inventory) always ask.
    type: int
    default: 0
  cache_stale_s:
    description:
      - When the provider cannot answer, an answer younger than this many seconds is used, with a warning and with its
        age in the host variable C(muster_inventory_age_s).
      - A refused credential is an error all the same.
    type: int
    default: 0
  cache_dir:
    description:
      - The folder for kept answers. They hold no credential and are readable by their owner only.
      - The default is C(muster.training/inventory) below C($XDG_CACHE_HOME) or C(~/.cache).
    type: path
  on_error:
    description:
      - V(fail) ends the run when this source cannot be read. Without its hosts a play would act on a part of the
        fleet.
      - V(warn) continues without its hosts and adds a line to the variable C(muster_inventory_problems) of the group
        C(all).
    type: str
    choices: [fail, warn]
    default: fail
"""
