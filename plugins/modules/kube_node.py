# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_node action; the work is done in plugins/action/kube_node.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_node
version_added: 0.1.0
short_description: Cordon, taint, drain and remove nodes of a Kubernetes cluster
description:
  - With O(state=absent), a node is cordoned, its pods are evicted as their disruption budgets allow, pods that do not
    end within O(drain_timeout_s) are force-deleted and named, then its Node is deleted, and with it the password that
    K3s keeps and that would refuse a new node of the same name. Pods of DaemonSets are not evicted.
  - Pods of a node whose kubelet does not answer are force-deleted at once, as it cannot confirm that they ended.
  - A Node that is a server of K3s with embedded etcd is taken out of etcd first, by the annotation
    C(etcd.k3s.cattle.io/remove). The removal is refused when the servers that stay would have no majority.
  - Nodes are drained at the same time. A node that does not exist is not an error.
  - By the ledger of the state home, a rented machine had its last run on some cluster. When that is another one than
    the kubeconfig's, nothing is changed; nodes of the same name may be others. O(cluster_id) confirms the
    cluster, such as after its control plane was created again.
  - The machine itself is not touched; M(muster.training.node_pool) deletes rented machines.
options:
  names:
    description: The names of the nodes in the cluster.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(cordoned) and V(schedulable) only cordon and uncordon the nodes. V(tainted) gives them the taints of O(taints)
        and removes those that it gave them before and that are not listed any more; taints of others stay.
      - V(drained) cordons the nodes and evicts their pods, and leaves the Nodes. Pods that do not end within
        O(drain_timeout_s) are named and left running, and the node is schedulable again if it was before.
    type: str
    choices: [absent, cordoned, drained, schedulable, tainted]
    default: absent
  taints:
    description:
      - For O(state=tainted), by name of the node its taints, such as C(example.com/gpu=reserved:NoSchedule). A node
        that is not named has none.
    type: dict
    default: {}
  ignore_environment:
    description:
      - With V(true), only a cluster that an option names is contacted, or the one that was brought up from the state
        home. Without either nothing is done, whatever E(KUBECONFIG) and C(~/.kube/config) name. For machines that may
        be part of no cluster.
    type: bool
    default: false
  drain_timeout_s:
    description: How many seconds pods may take to end. Time during which the API server is unreachable does not count.
    type: int
    default: 120
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
  - muster.training._state_home
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Drain two nodes and remove them from the cluster
  muster.training.kube_node:
    names: [gpu-3, gpu-4]
    kubeconfig: ~/.kube/config

- name: Keep new pods off a node that is to be repaired
  muster.training.kube_node:
    names: [gpu-1]
    state: cordoned

- name: Take the pods off a node that is to boot again
  muster.training.kube_node:
    names: [gpu-1]
    state: drained

- name: Keep pods that do not tolerate it off a node
  muster.training.kube_node:
    names: [gpu-1]
    state: tainted
    taints:
      gpu-1: [example.com/gpu=reserved:NoSchedule]
"""

RETURN = r"""
nodes:
  description:
    - One entry for each node, for other states than V(absent) and V(drained) with RV(nodes[].node) and
      RV(nodes[].cordoned).
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: Its name.
      type: str
    found:
      description: Whether the cluster had a Node of this name.
      type: bool
    cordoned:
      description: Whether it was cordoned now.
      type: bool
    evicted:
      description: Namespace and name of evicted pods.
      type: list
      elements: str
    forced:
      description: Namespace and name of pods that were force-deleted.
      type: list
      elements: str
    refused:
      description: By C(NAMESPACE/NAME) of a pod, why a disruption budget refused its eviction until the end.
      type: dict
    deleted:
      description: Whether its Node was deleted now.
      type: bool
    etcd_member_removed:
      description: Whether its member of etcd was removed now.
      type: bool
    password_deleted:
      description: Whether the password that K3s kept was deleted now.
      type: bool
requests:
  description: How many requests were sent.
  returned: always
  type: int
"""
