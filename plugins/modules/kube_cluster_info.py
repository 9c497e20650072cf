# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_cluster_info action; the work is done in plugins/action/kube_cluster_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_cluster_info
version_added: 0.1.0
short_description: Read the resources of a Kubernetes cluster's nodes and its storage
description:
  - Sums what pods can request of all nodes that take pods, and lists the StorageClasses with whether all nodes can
    write one of their volumes. Nothing is changed.
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
seealso:
  - module: muster.training.kube_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Read what the cluster has
  muster.training.kube_cluster_info:
  register: cluster

- name: Show its memory
  ansible.builtin.debug:
    var: cluster.allocatable.memory
"""

RETURN = r"""
nodes:
  description: The names of the nodes that are ready and take pods without tolerations.
  returned: success
  type: list
  elements: str
allocatable:
  description: >-
    Their resources together, such as C({cpu: 64000m, memory: 257400Mi, nvidia.com/gpu: '8'}).
  returned: success
  type: dict
storage:
  description: The StorageClasses, the one to prefer first.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    provisioner:
      description: Its provisioner.
      type: str
    shared:
      description: Whether all nodes can write one of its volumes at once.
      type: bool
    default:
      description: Whether claims without a class get it.
      type: bool
"""
