# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the diagnose_run action; the work is done in plugins/action/diagnose_run.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose_run
version_added: 0.1.0
short_description: Say why a run hangs or is slow
description:
  - Asks the nodes of a run that lives what its ranks do now, reads its logs there, and names the cause, the node and
    the fix. It works while the run goes on and without the controller that started it, and it changes nothing.
  - "It looks at: ranks that never started, ended, are stopped or wait in the kernel; connections that are not made or
    not acknowledged; interfaces, locked memory, shared memory, disk and control group; what moves on interfaces and
    RDMA ports; NCCL's RAS where NCCL runs; the kernel's messages where they may be read; the logs of all ranks."
  - "Of a run on Kubernetes it looks at the pods: why they do not start, who took them away, how they ended, their logs
    with what the ranks recorded in them, the cluster's warnings, and whether their nodes are ready. What needs a
    process inside a pod (sockets, limits, RAS) is not asked."
  - Of the ranks' environment the names are returned, and the values of variables that steer the network only.
options:
  run_id:
    description: The run. The default is the one run that lives on the hosts, else the newest that is recorded.
    type: str
  hosts:
    description: Inventory hosts to ask; the default is the run's recorded hosts, else the play's.
    type: list
    elements: str
  window_s:
    description: Seconds between two looks, which tell what moves; at most 60.
    type: float
    default: 1.0
  ras_s:
    description: Seconds to wait for the answer of NCCL's RAS on each node; 0 asks nothing.
    type: float
    default: 5.0
  dest:
    description: JSON file on the controller to write the diagnosis to.
    type: path
  kubeconfig:
    description:
      - For a run on Kubernetes, the kubeconfig (a path, or its content as a mapping).
      - By default as C(kubectl) finds it.
      - With it a run is looked for on the cluster too when this controller has no record of it.
    type: raw
  context:
    description: The context of the kubeconfig. The default is the recorded one, else the current one.
    type: str
  namespace:
    description: The namespace of the run's pods. The default is the recorded one, else the kubeconfig's.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: N/A
    details: It changes nothing but O(dest), which holds what is so at that moment.
seealso:
  - module: muster.training.diagnose_logs
  - module: muster.training.training_job_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Why does the run not move?
  muster.training.diagnose_run:
    run_id: char-lm-3f2a
    dest: ./diagnosis.json
  run_once: true
  register: diagnosis

- name: Show it
  ansible.builtin.debug:
    msg: "{{ diagnosis.summary }}"
  run_once: true

- name: Why does a run in pods not start?
  muster.training.diagnose_run:
    run_id: char-lm-3f2a
    kubeconfig: ~/.kube/config
    namespace: team-a
  run_once: true
"""

RETURN = r"""
run_id:
  description: The run that was looked at.
  returned: success
  type: str
diagnosis:
  description: The diagnosis, as it is written to O(dest).
  returned: success
  type: dict
  contains:
    outcome:
      description:
        - C(fail) when a cause keeps the job from going on, C(warn) when something costs speed.
        - C(unproven) when it does not move and nothing shows why, C(pass) when it moves and nothing was found.
      type: str
    state:
      description: One of C(not_started), C(starting), C(moving), C(slow), C(hanging) and C(ended).
      type: str
    progress:
      description: The last step, seconds since then, and the usual and the newest seconds of a step.
      type: dict
    ranks:
      description: Ranks that should be there, C(expected), and those that live, C(alive).
      type: dict
    causes:
      description: What decided, the first first, each with C(code), C(evidence), C(fix) and C(node) where known.
      type: list
      elements: dict
    also:
      description: Observations that did not decide, in the same form.
      type: list
      elements: dict
    nodes:
      description: By node what was seen, or the problem that kept it from answering.
      type: dict
summary:
  description: Lines for people.
  returned: success
  type: list
  elements: str
file:
  description: Where it was written.
  returned: with O(dest)
  type: str
"""
