# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the rdma_stack_info action; the work is done in plugins/action/rdma_stack_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_stack_info
version_added: 0.1.0
short_description: Decide what a Kubernetes cluster lacks so that pods get its RDMA devices
description:
  - Reads which device plugins offer the HCAs of which nodes, and decides what the role C(rdma_stack) installs, with the
    configuration of the plugin for each group of equal nodes. Installations of other tools are bound and never
    changed. Two programs that claim the same HCAs are refused.
  - Changes nothing.
options:
  provider:
    description:
      - What is installed where nothing offers the HCAs yet. V(shared_device_plugin) is k8s-rdma-shared-dev-plugin,
        V(network_operator) NVIDIA's network operator, V(sriov) the same with virtual functions, both by K3s'
        C(HelmChart). V(bind) installs nothing.
    type: str
    choices: [shared_device_plugin, sriov, network_operator, bind]
    default: shared_device_plugin
  devices:
    description:
      - By host the facts and the plan of the machine, as RV(muster.training.node_device_info#module:nodes) has them; of
        several answers the last one that has a host. Its Node has the name of C(muster_node.name), else the host's.
      - Of a Node without an entry, the HCAs are those that the role has written on it before.
    type: list
    elements: dict
    default: []
  operator_version:
    description: The version of the network operator. The default is that of the collection's list of downloads.
    type: str
  operator_values:
    description: Values of the network operator's chart, which are checked against the folders of networks of the nodes.
    type: dict
    default: {}
  policy:
    description: Fields of the operator's C(NicClusterPolicy). A configuration of the device plugin in it is checked.
    type: dict
    default: {}
  image:
    description: The image of k8s-rdma-shared-dev-plugin. The default is that of the collection's list of downloads.
    type: str
  images:
    description:
      - With V(sriov), the images C(multus-cni) and C(plugins) of the operator's release, by their digests. The default
        is those of O(operator_version) in the collection's list of downloads, which has them of 26.1.1.
    type: dict
    default: {}
  ipam:
    description: With V(sriov), how virtual functions get addresses, as the configuration of an IPAM plugin.
    type: dict
    default: {}
  vfs:
    description: With V(sriov), the virtual functions of each HCA.
    type: int
    default: 1
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
  - muster.training._device_stack
seealso:
  - module: muster.training.node_device_info
  - module: muster.training.gpu_stack_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Read the machines
  muster.training.node_device_info:
    hosts: "{{ ansible_play_hosts }}"
    roles: [rdma]
    refuse: false
  register: machines
  run_once: true

- name: Show what offers their HCAs, and with which configuration they would be offered
  muster.training.rdma_stack_info:
    devices: ["{{ machines.nodes }}"]
    refuse: false
  register: rdma
  run_once: true
"""

RETURN = r"""
action:
  description: V(none), V(bind), V(install) or V(refuse).
  returned: success
  type: str
reason:
  description: Why.
  returned: success
  type: str
groups:
  description:
    - Nodes that need the same configuration. C(name) is the value of their label C(muster.training/rdma), C(resource)
      what their pods request, C(config) the plugin's configuration as JSON, C(netdevs) the interfaces
      of the HCAs that jobs get, C(link) V(ib) or V(eth).
  returned: success
  type: list
  elements: dict
bound:
  description: Programs of others that offer HCAs, each with its nodes.
  returned: success
  type: dict
  sample: {"NicClusterPolicy nic-cluster-policy": ["gpu-1", "gpu-2"]}
labels:
  description:
    - Nodes with the label and the annotation to apply, as M(muster.training.kube_apply) takes them. The annotation
      C(muster.training/rdma-facts) has the HCAs that jobs get and the value of C(NCCL_IB_HCA).
  returned: success
  type: list
  elements: dict
labelled:
  description: The nodes that have a label of the role, without it.
  returned: success
  type: list
  elements: dict
refusals:
  description: Why nothing is installed, one line each, with what to do.
  returned: success
  type: list
  elements: str
warnings_of_nodes:
  description: What is worth knowing, such as an MTU that differs between nodes.
  returned: success
  type: list
  elements: str
has_nfd:
  description: Whether Node Feature Discovery runs in the cluster.
  returned: success
  type: bool
has_policies:
  description: Whether the API server serves the policies of the network operator.
  returned: success
  type: bool
policies:
  description: The operator's policies that the role has applied, as M(muster.training.kube_wait) takes objects.
  returned: success
  type: list
  elements: dict
images:
  description: The images by name with C(repository), C(image) and C(version), as the operator's policies have them.
  returned: success
  type: dict
chart_images:
  description: By the names of the operator's chart, the images for virtual functions whose digests are known.
  returned: success
  type: dict
node_policies:
  description: Whether each group gets a policy of the network operator of its own.
  returned: success
  type: bool
cni:
  description: Where the nodes have the C(programs) and the C(networks) of their network.
  returned: success
  type: dict
image:
  description: The image of k8s-rdma-shared-dev-plugin.
  returned: success
  type: str
"""
