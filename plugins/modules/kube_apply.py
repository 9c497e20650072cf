# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_apply action; the work is done in plugins/action/kube_apply.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_apply
version_added: 0.1.0
short_description: Apply a set of objects to a Kubernetes API server
description:
  - Server-side apply of any number of objects in one task. Each kind is read once, and only objects that differ from
    what is wanted are sent, eight at a time. A second run sends nothing.
  - Namespaces are applied first, then custom resource definitions, which are waited for, then what other objects
    need, then workloads and custom resources, then admission webhooks.
  - C(status), nulls and the fields of C(metadata) that the server writes are not sent.
  - In check mode everything that differs is sent as a dry run, and all refusals are reported together.
  - Runs on the controller. For Secrets use M(muster.training.kube_secret), which keeps their values out of the task.
options:
  objects:
    description:
      - Objects. One object, a list of them, a C(List), or YAML text of one or more documents.
      - One of O(objects), O(src) and O(prune) is required.
    type: raw
  src:
    description: Files with objects, or folders whose YAML and JSON files are taken in the order of their names.
    type: list
    elements: path
  namespace:
    description: The namespace of objects that name none. Without it that of the kubeconfig's context.
    type: str
  field_manager:
    description: The field manager under which the server records the applied fields.
    type: str
    default: muster
  force_conflicts:
    description:
      - Take over fields that another field manager owns with another value. Without it this is an error that names the
        manager and the fields.
    type: bool
    default: false
  validate:
    description: Send everything that differs as a dry run first, and change nothing if anything is refused.
    type: bool
    default: false
  prune:
    description:
      - Remove objects that have all O(prune_labels), were applied by O(field_manager) and are not among the objects.
        The kinds of the objects and O(prune_kinds) are searched, in the namespaces of the objects (in all namespaces
        when no object has one).
    type: bool
    default: false
  prune_labels:
    description: Labels of all objects of this set. Every object must have them. Required with O(prune).
    type: dict
  prune_kinds:
    description: Further kinds to search, such as C(batch/v1/Job).
    type: list
    elements: str
  timeout_s:
    description: How many seconds a definition may take until it is served.
    type: int
    default: 60
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full_with_diff
  - muster.training._kube
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Apply what a folder holds
  muster.training.kube_apply:
    src: [manifests/]
    namespace: training
  register: applied

- name: Wait for all of it
  muster.training.kube_wait:
    objects: "{{ applied.objects }}"

- name: Keep exactly these quotas
  muster.training.kube_apply:
    objects: "{{ lookup('ansible.builtin.template', 'quotas.yml.j2') }}"
    prune: true
    prune_labels:
      example.com/set: quotas
"""

RETURN = r"""
objects:
  description: One entry for each object in their order, then the pruned ones.
  returned: success
  type: list
  elements: dict
  contains:
    apiVersion:
      description: Its group and version.
      type: str
    kind:
      description: Its kind.
      type: str
    namespace:
      description: Its namespace, null for kinds without.
      type: str
    name:
      description: Its name.
      type: str
    action:
      description:
        - V(created), V(configured), V(unchanged) or V(pruned). V(adopted) when its content was as wanted and
          O(field_manager) now owns its fields.
      type: str
requests:
  description: How many requests were sent.
  returned: success
  type: int
writes:
  description: How many of them were writes. Always 0 in check mode, in which they are dry runs.
  returned: success
  type: int
"""
