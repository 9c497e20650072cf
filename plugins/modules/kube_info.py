# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_info action; the work is done in plugins/action/kube_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_info
version_added: 0.1.0
short_description: Read objects of a Kubernetes API server
description:
  - Reads one object by its name, or all objects of a kind that match selectors.
  - The values of Secrets are replaced. Nothing is changed.
options:
  kind:
    description: The kind, its plural or short name, or all of it such as C(jobset.x-k8s.io/v1alpha2/JobSet).
    type: str
    required: true
  api_version:
    description: Group and version of the kind, if it is served by several.
    type: str
  name:
    description: The name of one object. Selectors are not used then.
    type: str
  namespace:
    description:
      - The namespace. Without it all namespaces are read, and for O(name) that of the kubeconfig's context.
    type: str
  label_selectors:
    description: Label selectors that must all match, such as C(app=web) or C(tier in (a,b)).
    type: list
    elements: str
    default: []
  field_selectors:
    description: Field selectors that must all match, such as C(status.phase=Running).
    type: list
    elements: str
    default: []
  managed_fields:
    description: Whether to return which field manager owns which field.
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Read the nodes
  muster.training.kube_info:
    kind: Node
    label_selectors: ["pool=h100"]
  register: nodes

- name: Show who is ready
  ansible.builtin.debug:
    msg: "{{ nodes.resources | map(attribute='metadata.name') | list }}"
"""

RETURN = r"""
resources:
  description: The objects, empty when nothing matches.
  returned: success
  type: list
  elements: dict
states:
  description: The state of each object by the rules of M(muster.training.kube_wait).
  returned: success
  type: list
  elements: dict
  contains:
    state:
      description: V(done), V(failed) or V(waiting).
      type: str
    reason:
      description: What it waits for, or why it failed.
      type: str
requests:
  description: How many requests were sent.
  returned: success
  type: int
"""
