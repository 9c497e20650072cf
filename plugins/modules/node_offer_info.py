# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the node_offer_info action; the work is done in plugins/action/node_offer_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_offer_info
version_added: 0.1.0
short_description: What GPU machines the configured providers offer now
description:
  - Asks all configured providers of machines at the same time and returns what fits, by price per GPU and hour.
  - Runs on the controller. Nothing is rented or changed.
  - An advertised offer is not reserved; the provider may still refuse the order.
  - Machines that were of no use before, in any cluster of the state home, are named as such where an offer says on
    which machine it is (Vast.ai); M(muster.training.node_pool) leaves them out.
options:
  product:
    description: The provider's own word for what it sells, such as C(gpu_1x_h100_sxm5), a GPU id or an offer's id.
    type: str
  regions:
    description: The provider's own names of regions, any of them.
    type: list
    elements: str
    default: []
  kind:
    description: What the machine is. K3s needs V(vm) or V(baremetal).
    type: str
    choices: [vm, container, baremetal]
  unit:
    description: V(cluster) asks for several machines on one fast network, ordered and deleted as one.
    type: str
    choices: [machine, cluster]
    default: machine
  count:
    description: How many machines a cluster shall have. The price is for all of them.
    type: int
    default: 1
  gpu_model:
    description:
      - Words that the model's name must have, such as V(H100) or V(RTX 4090).
    type: str
  gpu_count:
    description: GPUs in one machine, exactly.
    type: int
  gpu_memory_gib_min:
    description: The least memory of one GPU in GiB.
    type: float
  memory_gib_min:
    description: The least memory of the machine in GiB. An offer that does not say is left out.
    type: float
  max_price_usd_per_hour:
    description: The highest price in US dollars per hour.
    type: float
  k3s_capable:
    description: Whether a K3s agent can run there.
    type: bool
  network_types:
    description: Networks that the machine must have, all of them.
    type: list
    elements: str
    choices: [mesh, lan, public]
    default: []
  available_only:
    description: Leave out what is advertised as sold out.
    type: bool
    default: true
  limit:
    description: The most offers to return.
    type: int
    default: 50
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._providers
  - muster.training._state_home
author:
  - muster.training contributors (@muster-training)
seealso:
  - module: muster.training.node_pool
"""

EXAMPLES = r"""
- name: The ten cheapest machines with one H100 that can run K3s
  muster.training.node_offer_info:
    gpu_model: H100
    gpu_count: 1
    k3s_capable: true
    limit: 10
  register: market

- name: Show them
  ansible.builtin.debug:
    msg: "{{ market.offers | map(attribute='product') | zip(market.offers | map(attribute='price_usd_per_hour')) }}"
"""

RETURN = r"""
offers:
  description: What fits, the cheapest GPU-hour first.
  returned: success
  type: list
  elements: dict
  contains:
    provider:
      description: The provider.
      type: str
    product:
      description: The provider's own word for it, which O(muster.training.node_pool#module:candidates) may name.
      type: str
    region:
      description: The provider's region, null where the provider chooses.
      type: str
    kind:
      description: One of C(vm), C(container) and C(baremetal).
      type: str
    unit:
      description: C(machine) or C(cluster).
      type: str
    price_usd_per_hour:
      description: US dollars per hour for the whole order.
      type: float
    price_usd_per_gpu_hour:
      description: US dollars per GPU and hour.
      type: float
    gpu_model:
      description: The model, null for a machine without GPU.
      type: str
    gpu_count:
      description: GPUs in one machine.
      type: int
    gpu_memory_gib:
      description: Memory of one GPU in GiB, null where it is not told. The same holds for the following values.
      type: float
    cpu_count:
      description: CPUs of one machine.
      type: int
    cpu_arch:
      description: C(x86_64) or C(aarch64).
      type: str
    memory_gib:
      description: Memory of one machine in GiB.
      type: float
    disk_gib:
      description: Disk of one machine in GiB.
      type: float
    available:
      description: What the provider advertises, null where it does not.
      type: bool
    stock:
      description: How many orders the offer can take, null where that is not limited.
      type: int
    k3s_capable:
      description: Whether a K3s agent can run there.
      type: bool
    network_types:
      description: The networks that the machine has.
      type: list
      elements: str
    host:
      description: The physical machine, where the provider tells it.
      type: str
    avoided_until:
      description: Until when its machine is not rented again, null where it is not avoided or not known.
      type: str
    avoided_reason:
      description: What was wrong with it last, null where it is not avoided or not known.
      type: str
found:
  description: How many offers fit, beyond O(limit) too.
  returned: success
  type: int
problems:
  description: Providers that could not be asked, with the reason. If none answers, the module fails.
  returned: success
  type: list
  elements: dict
"""
