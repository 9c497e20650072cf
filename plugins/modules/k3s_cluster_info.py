# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the k3s_cluster_info action; the work is done in plugins/action/k3s_cluster_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_cluster_info
version_added: 0.1.0
short_description: Check that machines can make a K3s cluster
description:
  - Reads C(muster_k3s_role) of the hosts, looks at all of them at once, and refuses by name what makes no cluster.
    There must be one server or an odd number of them, on one network and with the same options where K3s wants that, no
    two machines of one name or one machine id, no Kubernetes of another tool, and ranges
    of pods and Services that overlap neither each other nor a network of a machine, a mesh included.
  - A machine must be able to run K3s (systemd, its own cgroup tree, capabilities), be managed as root, have memory,
    disk and free ports, a clock that is right, folders that can be written, the interface and address that are asked
    for, and no driver or container packages that are half-installed. Where its network between pods goes over a mesh,
    K3s must be new enough for it.
  - A server of another cluster than the one whose kubeconfig is in the state home is refused, and so is a server
    without one, because a second cluster does not take the name of the first. Hosts of several C(muster_cluster) are
    refused.
  - K3s is not set back, upgraded past a minor version, or made newer on agents than on the servers. Where it runs, it
    is not brought to another version at all without O(max_unavailable), as all machines would start it again at once.
  - Changes nothing. A machine outside C(--limit) that does not answer is left out, with a line in RV(notes). A limit
    without any server is refused.
options:
  hosts:
    description: The hosts of the cluster, all of them, whatever C(--limit) says.
    type: list
    elements: str
    required: true
  joining:
    description:
      - Hosts of O(hosts) that join a cluster that is up. One without C(muster_k3s_role) is an agent. A server must be
        running, whatever C(--limit) says; other machines that do not answer are left out, with a line in RV(notes).
    type: list
    elements: str
    default: []
  cluster_cidr:
    description: The range of pods.
    type: str
    default: 10.42.0.0/16
  service_cidr:
    description: The range of Services.
    type: str
    default: 10.43.0.0/16
  adopt:
    description: Let another cluster take over O(cluster), whose own one no longer exists.
    type: bool
    default: false
  downgrade:
    description: Let K3s be set back to an older version.
    type: bool
    default: false
  max_unavailable:
    description:
      - Return RV(waves), the waves in which the machines would get their version of K3s. So many agents may be closed
        at once, a number or a percentage of all agents, rounded down, at least one.
    type: str
  cluster_nodes:
    description:
      - For O(max_unavailable), the Nodes of the cluster, as M(muster.training.kube_info) returns them. An agent whose
        Node is cordoned or not ready counts as unavailable.
    type: list
    elements: dict
    default: []
  cluster_pods:
    description: For O(max_unavailable), the pods of runs, from which RV(wave_table) says which runs are touched.
    type: list
    elements: dict
    default: []
  cluster_deployments:
    description:
      - For O(max_unavailable), Deployments of the cluster. RV(wave_table) says where JobSet or Kueue is of another
        version than is pinned.
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - muster.training._state_home
  - muster.training._attributes
  - muster.training._attributes.full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Check the machines of the cluster
  muster.training.k3s_cluster_info:
    hosts: "{{ query('ansible.builtin.inventory_hostnames', 'muster_nodes') }}"
  register: cluster

- name: Say in which waves the machines would get another version of K3s
  muster.training.k3s_cluster_info:
    hosts: "{{ query('ansible.builtin.inventory_hostnames', 'muster_nodes') }}"
    max_unavailable: 25%
"""

RETURN = r"""
server:
  description: The host that is the server; of several, the one that others join. It runs, where any does.
  returned: success
  type: str
server_address:
  description: >-
    The address by which agents reach the server, where C(k3s_node_ip) or C(k3s_flannel_iface) of the server chooses
    one. Else empty.
  returned: success
  type: str
servers:
  description: The hosts that are servers and answer.
  returned: success
  type: list
  elements: str
server_addresses:
  description: The addresses by which machines of the cluster reach the servers. Empty when one of them does not answer.
  returned: success
  type: list
  elements: str
standing:
  description: Servers on which K3s is stopped and that have to be started together, as the others are no majority.
  returned: success
  type: list
  elements: str
agents:
  description: The hosts that are agents.
  returned: success
  type: list
  elements: str
up:
  description: Whether K3s is running on a server.
  returned: success
  type: bool
table:
  description: The machines as a table, as M(muster.training.node_table) makes it.
  returned: success
  type: list
  elements: str
notes:
  description: What is worth knowing of a machine and does not keep it out, such as swap, Docker or a missing driver.
  returned: success
  type: list
  elements: str
  sample: ["gpu-1: swap is on (2 GiB): memory of pods can be swapped out"]
objects:
  description: The Nodes of all machines, as M(muster.training.kube_wait) takes them.
  returned: success
  type: list
  elements: dict
labels:
  description: The Nodes with the labels of the variable C(k3s_labels), as M(muster.training.kube_apply) takes them.
  returned: success
  type: list
  elements: dict
taints:
  description: By name of the Node the variable C(k3s_taints), as M(muster.training.kube_node) takes it.
  returned: success
  type: dict
nodes:
  description:
    - One entry for each machine, with the keys host, role, node, architecture, addresses, address, the one by which K3s
      reaches it, client, from which it is managed over SSH, and firewall, the active one (C(tool)) and the rules that
      were opened for the cluster (C(in_force), null unless all of them hold).
  returned: success
  type: list
  elements: dict
unconnected:
  description: The hosts on which K3s is not installed yet, as M(muster.training.k3s_network_info) takes them.
  returned: success
  type: list
  elements: str
waves:
  description:
    - The hosts of each wave. Servers are alone in one and first, or last where K3s is set back. Machines that an
      earlier upgrade has begun are first among those of their role. Empty where all machines are as they should be.
  returned: with O(max_unavailable)
  type: list
  elements: list
  sample: [["head"], ["gpu-1"], ["gpu-2"]]
wave_table:
  description: The same as lines to show, with the versions from and to, and the runs that have pods on each machine.
  returned: with O(max_unavailable)
  type: list
  elements: str
upgrades:
  description: >-
    By host the versions of K3s that it has (C(current)) and shall have (C(version)), and whether an earlier upgrade has
    begun it (C(begun)).
  returned: with O(max_unavailable)
  type: dict
firewalls:
  description: The hosts on which a firewall is active, or was opened for the cluster.
  returned: success
  type: list
  elements: str
"""
