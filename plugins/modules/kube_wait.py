# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_wait action; the work is done in plugins/action/kube_wait.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_wait
version_added: 0.1.0
short_description: Wait for objects of a Kubernetes API server
description:
  - Waits for any number of objects with one watch per kind. It ends at once when an object fails, with the cause.
  - Each kind has its own rule. A Deployment, DaemonSet or StatefulSet is done when its generation is rolled out, a
    Pod when it is ready or succeeded, a Job, JobSet, TrainJob, MPIJob, RayJob or Volcano Job when it succeeded, a
    Workload of Kueue when it is admitted, a claim when it is bound, a Node when it is ready, a definition when it is
    served. Other kinds are done when their condition C(Ready), C(Available) or C(Active) is true, or when they exist.
  - An outage of the API server that is shorter than O(patience_s) only delays the end.
  - In check mode it does not wait, since the objects may not exist.
options:
  objects:
    description: The objects to wait for. The result C(objects) of M(muster.training.kube_apply) can be given unchanged.
    type: list
    elements: dict
    required: true
    suboptions:
      apiVersion:
        description: Group and version. Without it the kind is looked up.
        type: str
      kind:
        description: The kind, such as C(Deployment) or C(jobset.x-k8s.io/v1alpha2/JobSet).
        type: str
        required: true
      name:
        description: The name of one object.
        type: str
      namespace:
        description: Its namespace. Without it that of the kubeconfig's context.
        type: str
      labels:
        description: Instead of O(objects[].name), the labels of the objects.
        type: dict
      count:
        description: How many objects with the labels there must be at least.
        type: int
        default: 1
      action:
        description: As in the result of M(muster.training.kube_apply). Objects that were V(pruned) are left out.
        type: str
  until:
    description:
      - V(done) applies the rule of the kind. V(running) ends as soon as the pods of a job are running, or the job
        succeeded; for other kinds it is V(done). V(present) and V(absent) wait for existence only.
    type: str
    choices: [done, running, present, absent]
    default: done
  condition:
    description: Wait for this condition of the objects instead of their kinds' rules.
    type: dict
    suboptions:
      type:
        description: The type of the condition.
        type: str
        required: true
      status:
        description: The status it must have.
        type: str
        default: "True"
  timeout_s:
    description: How many seconds to wait.
    type: int
    default: 300
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Wait for the operators and the queue
  muster.training.kube_wait:
    objects:
      - {kind: Deployment, name: kueue-controller-manager, namespace: kueue-system}
      - {kind: Deployment, name: jobset-controller-manager, namespace: jobset-system}
      - {kind: kueue.x-k8s.io/v1beta2/ClusterQueue, name: gpus}
    timeout_s: 180

- name: Wait for four nodes with a label
  muster.training.kube_wait:
    objects:
      - {kind: Node, labels: {pool: h100}, count: 4}
"""

RETURN = r"""
states:
  description: One entry for each object.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description: Kind, namespace and name.
      type: str
    state:
      description: V(done), V(failed) or V(waiting).
      type: str
    reason:
      description: What it waits for, or why it failed.
      type: str
requests:
  description: How many requests were sent.
  returned: always
  type: int
duration_s:
  description: How long it took.
  returned: always
  type: float
outages:
  description: The number of outages of the API server during the wait.
  returned: always
  type: int
"""
