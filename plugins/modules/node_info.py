# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the node_info action; the work is done in plugins/action/node_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
version_added: 0.1.0
short_description: Gather the facts of a node for training jobs
description:
  - Reads hardware, network, RDMA, GPU and system facts of a host in one request, and checks whether it can take part
    in a job. Nothing is written on the host, which needs only Python 3.10 or newer.
options:
  python:
    description: The interpreter that training jobs use on the host.
    type: str
    default: python3
  packages:
    description: Packages whose versions in that interpreter are returned.
    type: list
    elements: str
    default: []
  facts:
    description: Whether to gather hardware and network facts too.
    type: bool
    default: true
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Gather the facts of the nodes
  muster.training.node_info:
    packages: [torch]
  register: node
"""

RETURN = r"""
node:
  description: The node's facts; C(node.facts) holds those of hardware and network.
  returned: success
  type: dict
  sample: {"hostname": "gpu-1", "cpus": 64, "training": {"version": "3.12.4", "packages": {"torch": "2.9.0"}}}
record:
  description: The record of the node, C(muster_node) as the inventory has it, with what was measured.
  returned: success
  type: dict
  sample: {"name": "gpu-1", "gpu": {"model": "NVIDIA H100 80GB HBM3", "count": 8}, "memory_gib": 1771.5}
checks:
  description: The checks with C(ok), C(failures) and one entry each.
  returned: success
  type: dict
"""
