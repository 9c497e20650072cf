# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the fabric_verify action; the work is done in plugins/action/fabric_verify.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_verify
version_added: 0.1.0
short_description: Verify the network between nodes with a collective
description:
  - Finds the islands of the play's hosts, runs a collective on each with the launcher and the backend of training jobs,
    and judges transport, bandwidth, wrong values and attendance. An island passes only when all four pass.
  - The transport is proven by NCCL's channel lines or by the RDMA ports' byte counters; without GPUs by the sockets of
    gloo's ranks and the byte counters of their interface. A part without evidence is V(unproven) and does not pass.
options:
  hosts:
    description:
      - Inventory hosts to test; the default is the play's hosts.
      - On a cluster the names of nodes; the default is all nodes that can take a pod of O(job).
    type: list
    elements: str
  islands:
    description:
      - Islands that you declare, each with C(nodes) and any of C(name), C(lane), C(link), C(nic_count),
        C(nic_rate_gbps), C(expected_busbw_gb_s) and C(reason). Declared values override the rules.
    type: list
    elements: dict
    default: []
  expectations:
    description: Measured figures of your hardware, each with C(busbw_gb_s), C(source) and the conditions under which it
      applies.
    type: list
    elements: dict
    default: []
  backend:
    description: The default is V(nccl) when all hosts have GPUs, else V(gloo).
    type: str
    choices: [nccl, gloo]
  collective:
    description: The collective to measure.
    type: str
    choices: [all_reduce, all_gather, reduce_scatter, all_to_all]
    default: all_reduce
  seconds:
    description: Seconds to measure each size.
    type: float
    default: 0.6
  timeout_s:
    description: Seconds after which the processes of one test are killed.
    type: float
    default: 60
  bench:
    description:
      - V(torch) runs the collection's bench under torchrun with the interpreter of the training jobs.
      - V(nccl_tests) runs nccl-tests under mpirun; it needs GPUs, Open MPI and sshd on the hosts.
        On a cluster it needs them in the image, and the MPI operator.
    type: str
    choices: [torch, nccl_tests]
    default: torch
  nccl_tests:
    description: Folder of the programs of nccl-tests on the hosts or in the pods; the default searches C(PATH).
    type: str
  idle_only:
    description:
      - Whether to skip islands on which a run is running; their last verdict is kept.
      - For scheduled checks, which must not slow a job down.
    type: bool
    default: false
  max_age_s:
    description:
      - Verdicts that are not older than this are kept and nothing is tested, if they are for exactly these nodes and
        none of them failed. An unproven verdict is kept only with O(allow_unproven=true).
      - With V(0) every call tests.
    type: int
    default: 0
  allow_unproven:
    description:
      - Whether to succeed when an island is V(unproven). The verdict itself does not change.
      - For nodes on the loopback of one machine, which have no network to measure.
    type: bool
    default: false
  python:
    description: The interpreter with PyTorch; the default is the host variable C(muster_training_python).
    type: str
  job:
    description:
      - A job whose C(image), C(placement), C(python), C(env), C(mounts), C(resources), C(gpu), C(gpus_per_node) and
        C(secret_refs) (those for a registry) the tests use, so that they run in the image of the training jobs. All
        other keys are ignored.
      - With C(placement.backend=kubernetes) the nodes of a cluster are tested instead of hosts. A short pod on each
        node gathers its facts, the tests are Indexed Jobs of one pod a node, and island, lane and outcome become labels
        of the nodes (field manager C(muster-fabric)).
      - With any other backend it is ignored.
    type: dict
  kubeconfig:
    description:
      - For O(job) on Kubernetes, the kubeconfig (a path, or its content as a mapping).
      - By default as C(kubectl) finds it.
      - It must be allowed to read nodes and create pods, and to patch nodes if labels are to be written.
    type: raw
  context:
    description: The context of the kubeconfig. By default C(job.placement.cluster), else the current one.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: partial
    details:
      - Islands are found and nothing is measured. On a cluster no pod is created, so that islands follow from the Node
        objects; the changes of node labels by the last verdicts are shown.
  diff_mode:
    support: partial
    details: Labels and annotations of a cluster's nodes are shown.
  idempotent:
    support: full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Verify the network of all hosts
  muster.training.fabric_verify:
  run_once: true

- name: Two nodes on a 25 Gb/s link that the facts do not show
  muster.training.fabric_verify:
    islands:
      - {nodes: [gpu-1, gpu-2], nic_rate_gbps: 25, link: ethernet, reason: bonded link of the lab}
  run_once: true

- name: Verify the nodes of a cluster with the image of the training jobs
  muster.training.fabric_verify:
    job:
      image: registry.example.com/team/char-lm:1.4
      gpus_per_node: 8
      placement: {backend: kubernetes, namespace: team-a, network_mode: host}
    kubeconfig: ~/.kube/config
  run_once: true
"""

RETURN = r"""
drift:
  description:
    - For each island that changed since its earlier measurements, the changes in words.
    - A bandwidth below 0.85 of the median of its own earlier measurements is a warning.
  returned: when measured
  type: dict
node_patches:
  description:
    - For each node a merge patch of C(metadata) for a Kubernetes node of that name, with the labels
      C(muster.training/island), C(muster.training/lane) and C(muster.training/fabric), and annotations.
    - Null removes a value of an earlier verdict.
    - On a cluster they were written (in check mode, those of the last verdicts are returned, which would be written).
  returned: when measured and not failed (a failed result names the file)
  type: dict
fabric:
  description: The verdicts, as in C(fabric.json).
  returned: when measured and not failed (a failed result names the file)
  type: dict
file:
  description: The path of C(fabric.json).
  returned: when measured
  type: str
exit_code:
  description: 0 for pass and warn, 1 for fail and unproven.
  returned: when measured
  type: int
absent:
  description:
    - Hosts that did not answer, each with C(node), C(problem) and C(fix). The others are verified as usual; an
      island with an absent host is C(warn) at best, C(unproven) when only one of its hosts is left.
    - The task fails when a host did not answer, unless O(allow_unproven=true).
  returned: success
  type: list
  elements: dict
hosts:
  description: For each host its island, lane, outcome and NCCL environment.
  returned: when measured and not failed (a failed result names the file)
  type: dict
table:
  description: One line for each island.
  returned: when measured
  type: list
  elements: str
islands:
  description: The islands that would be tested.
  returned: in check mode
  type: list
  elements: dict
"""
