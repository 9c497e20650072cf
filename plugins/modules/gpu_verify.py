# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the gpu_verify action; the work is done in plugins/action/gpu_verify.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_verify
version_added: 0.1.0
short_description: Prove in a short pod on every node that pods get its GPUs and RDMA devices
description:
  - Runs a short Job of one pod on every node with NVIDIA GPUs, or with HCAs and no GPU. The pod requests all GPUs that
    are free there, and an RDMA resource where the node offers one, and lists what it got. That is compared with what
    the node's kubelet offers and with the node's own facts. That a node offers GPUs proves nothing. Where CDI is off, a
    pod runs without its device and without an event.
  - The task fails where pods of a node do not get its devices, with one line for each cause that has the node, the fact
    and what to do. A node whose GPUs are all in use, or that takes no pods, is unproven.
  - Nothing is left of the pods. They are waited for no longer than O(timeout_s).
options:
  records:
    description: Node records, as M(muster.training.node_info) returns them. Their C(gpu.count) is what is expected.
    type: list
    elements: dict
    default: []
  nodes:
    description:
      - The nodes to test. Without it all that have GPUs or HCAs. What C(gpus.json) says of others stays.
    type: list
    elements: str
    default: []
  cordoned:
    description: Whether nodes that are cordoned are tested, too.
    type: bool
    default: false
  ready_s:
    description: How many seconds O(nodes) may take to offer their GPUs, such as after a boot.
    type: int
    default: 0
  image:
    description: The image of the pods, one that has a shell, such as that of jobs. Required where a node is tested.
    type: str
  namespace:
    description: The namespace of the pods.
    type: str
    default: kube-system
  pull_secrets:
    description: Names of Secrets of O(namespace) with which the image is pulled.
    type: list
    elements: str
    default: []
  runtime_class:
    description: The RuntimeClass of the pods, for device plugins that need one. Without it pods have none.
    type: str
  timeout_s:
    description: How many seconds the pods may take, with the time in which the image is pulled.
    type: int
    default: 300
  allow_unproven:
    description: Whether nodes that could not be tested let the task succeed.
    type: bool
    default: false
  max_age_s:
    description:
      - For how many seconds a proof of a node holds. In that time no pod is run on it, as long as it is what it was
        then. That is the same boot, kubelet, containerd and device plugin, which offer the same. With V(0) every node
        is tested.
    type: int
    default: 0
  cluster:
    description: Name of the cluster in the state home, in whose folder C(gpus.json) is written.
    type: str
    default: default
  state_home:
    description: Where the controller keeps its state.
    type: dict
    default: {}
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._kube
attributes:
  check_mode:
    support: partial
    details: No pod is run. RV(nodes) has the names of the nodes that would be tested.
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: muster.training.gpu_stack_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Prove that pods get the GPUs and HCAs of all nodes
  muster.training.gpu_verify:
    image: docker.io/pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime
"""

RETURN = r"""
ok:
  description: Whether every node is proven. Null in check mode.
  returned: success
  type: bool
nodes:
  description:
    - For each node with GPUs or HCAs its C(outcome) (V(pass), V(fail) or V(unproven)), how many C(gpus) its facts and
      its kubelet have, and how many were used by pods and tested, the C(rdma) resource that the pod requested and the
      number of HCAs by the node's facts, what the pod has C(seen), and its C(problems), each with C(code), C(problem)
      and C(fix). C(tested_at) is when (Unix seconds), C(basis) what the node was then.
  returned: success
  type: list
  elements: dict
checks:
  description: The same as a list of checks, with C(name), C(node), C(ok), C(value), C(expected), C(problem), C(fix).
  returned: success
  type: list
  elements: dict
table:
  description: One line for each node.
  returned: success
  type: list
  elements: str
warnings_of_nodes:
  description: What should be known, such as containers that see GPUs without a request.
  returned: success
  type: list
  elements: str
file:
  description: The path of C(gpus.json) with all of this.
  returned: success
  type: str
"""
