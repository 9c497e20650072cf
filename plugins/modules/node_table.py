# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the node_table action plugin."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_table
version_added: 0.1.0
short_description: Show machines as a table
description:
  - Returns a table of machines for people to read, with CPU, memory, GPUs, network ports, the path over the mesh,
    whether K3s can run, and the price. What is not known is shown as C(-).
  - Of two to four DGX Sparks it also says what is wrong with the link between them, as their facts show it.
  - It runs on the controller and contacts no host.
options:
  nodes:
    description:
      - Records of machines, as in the variable C(muster_node) or in RV(muster.training.node_info#module:record).
    type: list
    elements: dict
    required: true
  k3s:
    description: Whether to show which machines K3s can run on, and why not.
    type: bool
    default: true
  addresses:
    description: By name of a machine the address that is declared for it (C(muster_address)).
    type: dict
    default: {}
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Make the table
  muster.training.node_table:
    nodes: "{{ ansible_play_hosts | map('extract', hostvars, 'muster_node') | list }}"
  register: machines
  run_once: true

- name: Show it
  ansible.builtin.debug:
    var: machines.table
  run_once: true
"""

RETURN = r"""
table:
  description: The lines of the table, a header first and the sums last.
  returned: success
  type: list
  elements: str
  sample:
    - "name   CPU         RAM      GPU                       VRAM      NICs             mesh  K3s  price"
    - "gpu-1  208 x86_64  1772 GiB  8 x NVIDIA H100 80GB HBM3  79.6 GiB  8 x 400 Gb/s ib  -     yes  23.92 USD/h"
    - "1 machines, 8 GPUs, 23.92 USD/h"
problems:
  description: What is wrong with the link between DGX Sparks so that no job should begin, a line each.
  returned: success
  type: list
  elements: str
notes:
  description: What makes the link between DGX Sparks slow, a line each.
  returned: success
  type: list
  elements: str
  sample:
    - "spark-1: cx7_mtu: enp1s0f1np1 has MTU 1500 instead of 9000. Set mtu: 9000 for both interfaces of the port"
"""
