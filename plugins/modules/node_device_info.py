# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the node_device_info action; the work is done in plugins/action/node_device_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_device_info
version_added: 0.1.0
short_description: Decide how machines get their GPU driver, container runtime and RDMA
description:
  - Reads the state of NVIDIA GPUs, their driver, the container toolkit, CDI and RDMA on all hosts at once, one
    request each, and decides for each host what the roles C(gpu_driver), C(container_runtime) and C(rdma) would change.
    A working driver, toolkit or RDMA stack is kept, however it was installed.
  - The options of those roles are taken from the variables of each host, such as C(gpu_driver_source).
  - Changes nothing.
options:
  hosts:
    description: The hosts to look at. The default is the host of the task.
    type: list
    elements: str
  roles:
    description: The roles whose plans are made, and whose refusals count.
    type: list
    elements: str
    choices: [gpu_driver, container_runtime, rdma]
    default: [gpu_driver, container_runtime, rdma]
  refuse:
    description:
      - Whether the task fails where the plan of a host is a refusal. Every refusal of every host is in the message,
        with what to do.
    type: bool
    default: true
  max_unavailable:
    description:
      - Return RV(waves), the waves in which the machines would get another driver. So many machines may be closed at
        once, a number or a percentage of those with GPUs, rounded down, at least one.
      - The plans are those of machines whose pods were evicted.
    type: str
  cluster_nodes:
    description:
      - The Nodes of their cluster, as M(muster.training.kube_info) returns them. One that is cordoned or not ready
        counts as unavailable.
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.node_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Decide what the machines lack, all at once
  muster.training.node_device_info:
    hosts: "{{ ansible_play_hosts }}"
  register: devices
  run_once: true

- name: Install the driver where it is missing
  ansible.builtin.include_role:
    name: muster.training.gpu_driver
  when: inventory_hostname in devices.stale.gpu_driver

- name: Only look, whatever refuses
  muster.training.node_device_info:
    roles: [gpu_driver]
    refuse: false
"""

RETURN = r"""
nodes:
  description:
    - By host its facts, and by role its plan. A plan has C(action) (V(none), V(keep), V(install),
      V(upgrade), V(reboot), V(start) or V(refuse)), C(reason), C(refusals) with C(problem) and C(fix), C(warnings),
      and what the role carries out, such as C(packages), C(repositories), C(modules), C(units), and C(reboot), the
      reason for which the machine has to boot again.
    - The plan of C(rdma) has C(kind) (V(none), V(infiniband), V(roce) or V(efa)), C(hcas), of each port whether jobs
      get it and why not, C(nccl_ib_hca), C(gpudirect) (V(dmabuf), V(peermem), empty for none, null for not known),
      C(acs) the bridges whose ACS is switched off, C(kernel_options) with which it is to boot, and
      C(plugin_entry), the entry of the machine in C(configList) of k8s-rdma-shared-dev-plugin, which has the HCAs that
      jobs get and no others, null for none.
  returned: success
  type: dict
stale:
  description: For each role the hosts on which it would change something.
  returned: success
  type: dict
  sample: {"gpu_driver": ["gpu-1"], "container_runtime": ["gpu-1", "gpu-2"], "rdma": []}
waves:
  description:
    - With O(max_unavailable), the hosts of each wave. Those that an earlier run closed or changed are first, servers of
      the cluster last, one in a wave. Empty where no driver would be changed.
  returned: success
  type: list
  elements: list
  sample: [["gpu-2"], ["gpu-3", "gpu-4"]]
wave_table:
  description: The same as lines to show.
  returned: success
  type: list
  elements: str
refusals:
  description: What the hosts refuse, one line each, with what to do.
  returned: success
  type: list
  elements: str
"""
