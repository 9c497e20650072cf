# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the gpu_stack_info action; the work is done in plugins/action/gpu_stack_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_stack_info
version_added: 0.1.0
short_description: Decide what a Kubernetes cluster lacks so that pods get its NVIDIA GPUs
description:
  - Reads which programs offer C(nvidia.com/gpu) on which nodes (device plugins, the GPU operator, DRA), and decides
    what the role C(gpu_stack) installs. Installations of other tools are bound and never changed. Two programs that
    offer the GPUs of one node are refused.
  - Changes nothing.
options:
  provider:
    description:
      - What is installed where nothing offers the GPUs yet. NVIDIA's device plugin, or the GPU operator by K3s'
        C(HelmChart), or NVIDIA's driver of dynamic resource allocation (V(dra), Kubernetes 1.34.2 and newer). V(bind)
        installs nothing.
    type: str
    choices: [device_plugin, gpu_operator, dra, bind]
    default: device_plugin
  records:
    description:
      - Node records, as M(muster.training.node_info) returns them. Their C(gpu) says which nodes have GPUs, and which
        ones; a node without a record has GPUs by O(nodes), by the labels of Node Feature Discovery, or by its kubelet.
    type: list
    elements: dict
    default: []
  nodes:
    description: Names of Nodes that have GPUs, for machines that are not in the inventory.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
  - muster.training._device_stack
seealso:
  - module: muster.training.node_device_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Show who offers the GPUs of a cluster
  muster.training.gpu_stack_info:
    provider: bind
    refuse: false
  register: gpus

- name: Show the programs and their nodes
  ansible.builtin.debug:
    var: gpus.bound
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
nodes:
  description: The nodes whose GPUs the installed program is to offer.
  returned: success
  type: list
  elements: str
bound:
  description: Programs of others that offer GPUs, each with its nodes.
  returned: success
  type: dict
  sample: {"DaemonSet kube-system/nvidia-device-plugin-daemonset": ["gpu-1", "gpu-2"]}
labels:
  description: Nodes with the labels to apply, as M(muster.training.kube_apply) takes them.
  returned: success
  type: list
  elements: dict
labelled:
  description: The nodes that have labels of the role, without them.
  returned: success
  type: list
  elements: dict
refusals:
  description: Why nothing is installed, one line each, with what to do.
  returned: success
  type: list
  elements: str
warnings_of_nodes:
  description: What jobs have to know, such as nodes whose GPUs several pods share.
  returned: success
  type: list
  elements: str
has_nfd:
  description: Whether Node Feature Discovery runs in the cluster.
  returned: success
  type: bool
image:
  description: The image of NVIDIA's device plugin, or of its driver of dynamic resource allocation.
  returned: success
  type: str
expected:
  description: By node how many GPUs its record has.
  returned: success
  type: dict
"""
