# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the export_info action; the work is done in plugins/action/export_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: export_info
version_added: 0.1.0
short_description: Make a file by which other programs know the machines of an inventory
description:
  - Returns the text of the file. Writes nothing and contacts no host; the playbook C(export) writes it.
  - With O(to=ssh_config) it is a file for C(Include) in C(~/.ssh/config), which editors and NVIDIA Sync read. Each host
    is C(muster-CLUSTER-NODE) in it. Keys are named by their path. Passwords are not in it.
options:
  to:
    description: What is made.
    type: str
    required: true
    choices: [ssh_config]
  hosts:
    description: Names of hosts of the inventory.
    type: list
    elements: str
    required: true
  path:
    description: Where the file is to be, a file or a folder that exists. Relative to the folder of C(ansible-playbook).
    type: path
    default: .
  cluster:
    description: The name of the cluster, which is a part of the names in the file.
    type: str
    default: default
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - plugin: muster.training.ssh_config
    plugin_type: inventory
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Make an ssh_config file of the machines
  muster.training.export_info:
    to: ssh_config
    hosts: "{{ groups['muster_nodes'] }}"
    path: ~/.ssh/muster.ssh_config
  register: export

- name: Write it
  ansible.builtin.copy:
    content: "{{ export.text }}"
    dest: "{{ export.path }}"
    mode: "0600"
  delegate_to: localhost
"""

RETURN = r"""
text:
  description: The file.
  returned: success
  type: str
path:
  description: Where it is to be.
  returned: success
  type: str
notes:
  description: Hosts that are not in it, and what is not exported of others, a line each.
  returned: success
  type: list
  elements: str
use:
  description: How it is used, a line each.
  returned: success
  type: list
  elements: str
"""
