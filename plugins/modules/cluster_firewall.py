# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the cluster_firewall action; the work is done in plugins/action/cluster_firewall.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_firewall
version_added: 0.1.0
short_description: Open the firewalls of the machines of a cluster for each other
description:
  - Lets the ports of K3s, of pods and of jobs through ufw, firewalld or nftables, whichever is active on a host,
    between the addresses of the cluster's own machines. Port 6443 of a server is open besides for the address from
    which the host is managed, and for O(api_from). Nothing is opened to the world.
  - On a host without an active firewall nothing is done.
  - With O(state=absent) what was opened is closed again.
  - All hosts are asked at once; one request each, and none where the rules are in force.
options:
  state:
    description: Whether the firewalls let the cluster's packets through.
    type: str
    choices: [present, absent]
    default: present
  hosts:
    description: The hosts whose firewalls are opened or closed.
    type: list
    elements: str
    required: true
  nodes:
    description:
      - All machines of the cluster, as in RV(muster.training.k3s_cluster_info#module:nodes), with the keys C(host),
        C(role), C(addresses), and C(client), the address from which it is managed. Required with O(state=present).
      - A host whose C(firewall) there says that its rules are in force is not asked again.
    type: list
    elements: dict
    default: []
  cluster_cidr:
    description: The range of pods.
    type: str
    default: 10.42.0.0/16
  api_from:
    description: Further addresses or ranges from which the API of the servers is used.
    type: list
    elements: str
    default: []
  job_ports:
    description:
      - Ports of jobs that use the network of the machines themselves, such as C(20000-30000/tcp). By default all that
        programs may choose, and that of RoCE version 2.
    type: list
    elements: str
    default: [1024-65535/tcp, 4791/udp]
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.k3s_cluster_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Check the machines of the cluster
  muster.training.k3s_cluster_info:
    hosts: "{{ groups['muster_nodes'] }}"
  register: cluster
  run_once: true

- name: Open their firewalls for each other
  muster.training.cluster_firewall:
    hosts: "{{ cluster.firewalls }}"
    nodes: "{{ cluster.nodes }}"
  run_once: true

- name: Close the firewall of this host again
  muster.training.cluster_firewall:
    state: absent
    hosts: ["{{ inventory_hostname }}"]
"""

RETURN = r"""
firewalls:
  description:
    - For each host the keys C(tool) (V(ufw), V(firewalld), V(nftables), or null without an active firewall),
      C(changed), and C(rules) in the firewall's own language.
  returned: success
  type: dict
  sample: {"gpu-1": {"tool": "ufw", "changed": true, "rules": ["ufw allow from 10.42.0.0/16 comment 'muster'"]}}
"""
