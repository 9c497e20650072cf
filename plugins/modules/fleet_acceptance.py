# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the fleet_acceptance action; the work is done in plugins/action/fleet_acceptance.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_acceptance
version_added: 0.1.0
short_description: Accept a fleet of nodes, with proof for each claim
description:
  - Runs the tests of an acceptance one after another, on hosts or on the nodes of a cluster, through the launchers and
    backends that training jobs use, and writes C(accept.json) and a page.
  - C(gpus) has a short pod on every node of a cluster list the GPUs that it got, as M(muster.training.gpu_verify) does,
    where jobs request some.
  - C(fabric) verifies the network as M(muster.training.fabric_verify) does.
  - C(scaling) times training steps with a fixed batch per rank on 1, 2, 4, 8 … nodes and splits what a step loses into
    compute, input, stragglers and communication.
  - C(queue) submits two gangs where one fits (Kubernetes with Kueue; it does not apply to hosts).
  - C(user) launches a job with a plain user's rights. On hosts the ranks must not run as root.
  - C(resume) kills an agent with its ranks in a training run and sees the run resume.
  - A test that fails does not keep the others from running. A property without proof is
    V(unproven), which does not pass.
options:
  hosts:
    description: Inventory hosts to accept; the default is the play's hosts.
    type: list
    elements: str
  nodes:
    description: How many nodes the fleet has. Required on Kubernetes; on hosts the default is all of them.
    type: int
  tests:
    description: The tests to run.
    type: list
    elements: str
    choices: [gpus, fabric, scaling, queue, user, resume]
    default: [gpus, fabric, scaling, queue, user, resume]
  job:
    description:
      - A job whose C(image), C(placement), C(python), C(env), C(mounts), C(resources), C(gpu), C(gpus_per_node),
        C(processes_per_node), C(checkpoints.path) and C(secret_refs) (those for a registry) the tests take over.
      - With C(placement.backend=kubernetes) the nodes of a cluster are accepted. On hosts C(gpus_per_node) is by
        default what every host has.
    type: dict
    default: {}
  resume_job:
    description:
      - What runs in C(resume) instead of the collection's example, keys of a job. It must save checkpoints.
    type: dict
  kill_at_step:
    description: The step at which C(resume) kills.
    type: int
    default: 50
  queue_nodes:
    description: Nodes of each gang of C(queue), such that the queue has room for one. The default is all.
    type: int
  seconds:
    description: Seconds of each of the two measurements of C(scaling) on each number of nodes.
    type: float
    default: 5
  bench_args:
    description:
      - Further arguments of the program of C(scaling), C(--width), C(--layers), C(--batch) or C(--threads).
    type: list
    elements: str
    default: []
  efficiency_pass:
    description: The efficiency on all nodes from which C(scaling) passes.
    type: float
    default: 0.85
  efficiency_fail:
    description: The efficiency below which it fails; between the two it warns.
    type: float
    default: 0.6
  islands:
    description: Islands that you declare, as for M(muster.training.fabric_verify).
    type: list
    elements: dict
    default: []
  expectations:
    description: Measured figures of your hardware, as for M(muster.training.fabric_verify).
    type: list
    elements: dict
    default: []
  allow_unproven:
    description:
      - Whether the task succeeds when nothing failed and something is V(unproven). The outcome stays what it is.
    type: bool
    default: false
  user_kubeconfig:
    description:
      - The kubeconfig of a plain user for C(user), a path, its content or a mapping, such as the role C(team) makes.
    type: raw
  kubeconfig:
    description: The kubeconfig of who accepts, on Kubernetes. By default as C(kubectl) finds it.
    type: raw
  context:
    description: Its context.
    type: str
  dest:
    description:
      - The folder for C(accept.json) and C(accept.html). The default is the cluster's folder of the state home.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: partial
    details: Says which sizes and tests would run; nothing is measured and nothing is written.
  diff_mode:
    support: none
  idempotent:
    support: full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Accept the hosts of the play
  muster.training.fleet_acceptance:
  run_once: true

- name: Accept a cluster with the image that will train
  muster.training.fleet_acceptance:
    nodes: 8
    job:
      image: registry.example.com/team/train:1.4
      gpus_per_node: 8
      placement: {backend: kubernetes, namespace: vision, queue: main}
      mounts: [{name: checkpoints, path: /checkpoints, pvc: checkpoints}]
      checkpoints: {path: /checkpoints}
    user_kubeconfig: ~/vision.kubeconfig
  run_once: true
"""

RETURN = r"""
acceptance:
  description: The content of C(accept.json), null when the fleet is not accepted (it stands in RV(file)).
  returned: when measured
  type: dict
  contains:
    schema:
      description: The version of this form, 1 now.
      type: int
    outcome:
      description: The heaviest of the parts that apply, V(pass), V(warn), V(unproven) or V(fail).
      type: str
    exit_code:
      description: 0 for V(pass) and V(warn), 1 for V(fail) and V(unproven).
      type: int
    parts:
      description:
        - One entry for each test, with C(name), C(outcome) (also V(not_applicable)), C(summary), C(reasons) and its
          figures.
        - Of C(scaling) C(points), with C(nodes), C(ranks), C(step_s), C(samples_per_s), C(efficiency), C(input_s),
          C(compute_s), C(straggler_s), C(communication_s), C(loss_s) and C(loss) (its split).
      type: list
      elements: dict
exit_code:
  description: 0 or 1, as in RV(acceptance).
  returned: when measured
  type: int
table:
  description: One line for each test.
  returned: when measured
  type: list
  elements: str
file:
  description: Where C(accept.json) is.
  returned: success
  type: str
html:
  description: Where the page is.
  returned: success
  type: str
"""
