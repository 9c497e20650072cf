# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the diagnose_run action; the work is done in plugins/action/diagnose_run.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose_run
version_added: 0.1.0
short_description: Diagnose why a run hangs or is slow
description:
  - Reads the state of a run's ranks and their logs from its nodes, and names the cause, the node and the fix. It works
    while the run is running and without the controller that started it, and it changes nothing.
  - "It checks: ranks that never started, ended, are stopped or wait in the kernel; connections that are not established
    or not acknowledged; interfaces, locked memory, shared memory, disk and control group; traffic on interfaces and
    RDMA ports; NCCL's RAS where NCCL is used; the kernel's messages where they may be read; the logs of all ranks."
  - "For a run on Kubernetes it checks the pods: why they do not start, were evicted or failed, their logs with the
    events that the ranks recorded, the cluster's warnings, and whether their nodes are ready. Checks that need a
    process inside a pod (sockets, limits, RAS) are not made."
  - Of the ranks' environment, the names of all variables are returned, and the values only of those that configure the
    network.
options:
  run_id:
    description: The run. The default is the one run that is running on the hosts, else the newest recorded run.
    type: str
  attach:
    description:
      - Look at jobs on the hosts that this collection did not start, by torchrun, accelerate, DeepSpeed or
        mpirun, in place of a run of its own. It says which rank the others wait for and at which line of its
        program, for all ranks that the user of the connection may read.
      - Nothing is installed on the hosts, and nothing of the jobs is stopped or changed. They are looked at for at
        least six seconds.
      - Stacks are read from the memory of CPython 3.11 to 3.13. Where C(kernel.yama.ptrace_scope) is 1, only root may.
    type: bool
    default: false
  hosts:
    description: Inventory hosts to read; the default is the run's recorded hosts, else the play's.
    type: list
    elements: str
  window_s:
    description: Seconds between two readings of the counters, which show the traffic; at most 60.
    type: float
    default: 1.0
  ras_s:
    description: Seconds to wait for the answer of NCCL's RAS on each node; 0 does not query it.
    type: float
    default: 5.0
  dest:
    description: JSON file on the controller to write the diagnosis to.
    type: path
  kubeconfig:
    description:
      - For a run on Kubernetes, the kubeconfig (a path, or its content as a mapping).
      - By default as C(kubectl) finds it.
      - With it, a run that is not recorded on this controller is searched for on the cluster.
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
    details: It changes only O(dest), which holds the state at that moment.
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

- name: Show the diagnosis
  ansible.builtin.debug:
    msg: "{{ diagnosis.summary }}"
  run_once: true

- name: Which rank hangs of a job that was started by hand?
  muster.training.diagnose_run:
    attach: true
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
  description: The diagnosed run.
  returned: without O(attach)
  type: str
gangs:
  description:
    - The jobs of others on the hosts, each with C(gang) (the address of its rendezvous), C(program), C(world_size),
      C(ranks), C(hang) (who is waited for and what the others do, null where none is seen) and C(lines).
  returned: with O(attach)
  type: list
  elements: dict
nodes:
  description: The hosts that answered.
  returned: with O(attach)
  type: list
  elements: str
diagnosis:
  description: The diagnosis, as it is written to O(dest).
  returned: without O(attach)
  type: dict
  contains:
    outcome:
      description:
        - C(fail) when a cause prevents the job from continuing, C(warn) when something costs speed.
        - C(unproven) when it does not progress and no cause was found, C(pass) when it progresses without a problem,
          or has succeeded.
      type: str
    state:
      description:
        - One of C(not_started), C(starting), C(restarting) (an attempt is over, the run is not), C(moving), C(slow),
          C(late), C(hanging) and C(ended).
      type: str
    progress:
      description: The last step, seconds since then, and the usual and the newest seconds of a step.
      type: dict
    ranks:
      description: Ranks that should be running, C(expected), and ranks that are, C(alive). Where nodes do not answer,
        C(unknown_on) names them.
      type: dict
    causes:
      description: The causes, the deciding one first, each with C(code), C(evidence), C(fix) and C(node) where known.
      type: list
      elements: dict
    also:
      description: Other observations, in the same form.
      type: list
      elements: dict
    nodes:
      description: By node what it reported, or why it did not answer.
      type: dict
summary:
  description: The diagnosis in readable lines.
  returned: success
  type: list
  elements: str
file:
  description: The file to which the diagnosis was written.
  returned: with O(dest)
  type: str
"""
