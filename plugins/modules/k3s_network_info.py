# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the k3s_network_info action; the work is done in plugins/action/k3s_network_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_network_info
version_added: 0.1.0
short_description: Check that the network between pods will pass between machines
description:
  - Has all hosts send datagrams to each other on port 8472/udp (VXLAN) and listen for them, at once, before K3s is on
    them. It fails naming a pair between which nothing passes; a cluster would come up with pods that cannot reach
    each other.
  - Where K3s is running already, its VXLAN link has the port, and nothing is checked.
  - Changes nothing.
options:
  nodes:
    description: Machines with the keys C(host) and C(address), as in RV(muster.training.k3s_cluster_info#module:nodes).
    type: list
    elements: dict
    required: true
  hosts:
    description: The hosts among them that are checked, as in RV(muster.training.k3s_cluster_info#module:unconnected).
    type: list
    elements: str
    required: true
  wait_s:
    description: Seconds after which a datagram counts as lost.
    type: int
    default: 15
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.k3s_cluster_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Check the network between the machines
  muster.training.k3s_network_info:
    nodes: "{{ cluster.nodes }}"
    hosts: "{{ cluster.unconnected }}"
  run_once: true
"""

RETURN = r"""
pairs:
  description: Between how many pairs of machines, each direction by itself, datagrams were seen to pass.
  returned: success
  type: int
"""
