# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the coreweave_node_pool action; the work is done in plugins/action/coreweave_node_pool.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: coreweave_node_pool
version_added: 0.1.0
short_description: Size a node pool of a CoreWeave cluster
description:
  - Creates, scales or deletes a C(NodePool) object (C(compute.coreweave.com/v1alpha1)) through the cluster's API
    server.
  - Nodes of a pool belong to CoreWeave's Kubernetes. They are not rented by name, so they have no lease in the
    ledger. Scale the pool to 0, or delete it, to stop paying.
  - Runs on the controller, with a CoreWeave API token (managed auth). Private API servers must be reachable from there.
options:
  state:
    description: V(absent) deletes the pool.
    type: str
    choices: [present, absent]
    default: present
  cluster:
    description: The cluster's name or id, to look up its API server.
    type: str
  endpoint:
    description: The address of the cluster's API server, instead of O(cluster).
    type: str
  name:
    description: The name of the node pool.
    type: str
    required: true
  target_nodes:
    description: How many nodes it shall have. Required for O(state=present).
    type: int
  min_nodes:
    description: The least that an autoscaler may leave. Left as it is when not given.
    type: int
  max_nodes:
    description: The most that an autoscaler may reach. Left as it is when not given.
    type: int
  instance_type:
    description: CoreWeave's type of instance. Needed to create a pool. It cannot be changed later.
    type: str
  labels:
    description: Labels for the nodes of a pool that is created.
    type: dict
    default: {}
  wait_timeout_s:
    description:
      - How long to wait for a deleted pool to be gone, in seconds. The module fails when it still exists then, because
        its nodes may bill.
    type: int
    default: 600
  api_token:
    description:
      - The API token. Without it and O(api_token_file) the environment variable E(COREWEAVE_API_TOKEN) is used.
    type: str
  api_token_file:
    description: A file that holds the API token.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full_with_diff
  - muster.training._api
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Four nodes for the night
  muster.training.coreweave_node_pool:
    cluster: training
    name: h100
    target_nodes: 4

- name: None in the morning
  muster.training.coreweave_node_pool:
    cluster: training
    name: h100
    target_nodes: 0
"""

RETURN = r"""
node_pool:
  description: The pool as it was asked for, null when it was deleted.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
    instance_type:
      description: Its type of instance.
      type: str
    target_nodes:
      description: How many nodes it shall have.
      type: int
    min_nodes:
      description: Its lower limit, null when it has none.
      type: int
    max_nodes:
      description: Its upper limit, null when it has none.
      type: int
    nodes:
      description: How many nodes it has now, null where its status does not say.
      type: int
"""
