# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_job action; the work is done on the controller, in plugins/action/training_job.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_job
version_added: 0.1.0
short_description: Run a multi-node training job on plain hosts or Kubernetes, follow it, and prove that it resumed
description:
  - Starts a gang of processes on the hosts of the play, or of pods on a cluster, and follows it to its end.
  - Nothing starts until every host has passed its preflight, holds the code and can reach the first host's port.
    If one host cannot start, all are stopped and the reason is given.
  - The launcher's own engine restarts what fails (torchrun's elastic agents, or C(mpirun) as a whole), within
    C(job.restart). The processes outlive the connection and the controller; the same task finds them again.
  - The same job with the same code gets the same run id, so running the task again changes nothing while the run lives
    and after it has succeeded. A run that failed, was lost or was cancelled continues from its checkpoint.
  - With C(job.placement.backend=kubernetes) the gang is an object of JobSet, Kueue, Kubeflow Trainer, the MPI operator,
    KubeRay or Volcano (C(job.placement.engine)); placement is judged, names and ports between pods are probed, and
    all objects are checked by the server before the job is submitted. The play's hosts are then not used.
  - A run that saw fewer ranks than asked is failed, whatever its exit code.
options:
  job:
    description:
      - What to run. The keys are described in the guide to the job model; unknown keys are refused.
      - Required unless O(run_id) names a recorded run to continue.
    type: dict
    suboptions:
      name:
        description: Name of the job, at most 40 characters, lower-case letters, digits and C(-).
        type: str
        required: true
  run_id:
    description:
      - Name of the run. The default is made from the job's name and a checksum of the job and its code.
    type: str
  state:
    description:
      - V(present) starts or continues the run and follows it.
      - V(cancelled) stops it on all its hosts, giving it C(job.checkpoints.grace_s) seconds to save.
    type: str
    choices: [present, cancelled]
    default: present
  hosts:
    description: Inventory hosts to choose nodes from, in order; rank 0 is on the first. The default is all of the play.
    type: list
    elements: str
  template_paths:
    description: Folders with a team's own job templates, one YAML file each; the first folder that has a name wins.
    type: list
    elements: path
    default: []
  wait:
    description: Whether to follow the run to its end. Without it the task ends when every agent has been started.
    type: bool
    default: true
  take_over:
    description: Whether to take a run over that another controller started.
    type: bool
    default: false
  recreate:
    description:
      - Whether a run on Kubernetes that lives with another job is stopped and started anew with this one.
      - Without it the task fails and shows what differs. On plain hosts cancel the run first.
      - Also whether a run is started again whose object is gone from the cluster (deleted, or its time to live over)
        before anybody saw how it ended.
    type: bool
    default: false
  drill:
    description:
      - Kill something on purpose while following, and prove the resume from the step counter.
    type: dict
    suboptions:
      target:
        description:
          - One rank's process, a host's agent with its ranks, or everything of the run on a host.
          - On Kubernetes V(agent) is a pod and V(host) all pods of the run on a node; a single rank cannot be killed.
        type: str
        choices: [worker, agent, host]
        default: worker
      rank:
        description: The rank to kill; also chooses the host. The default is the last rank.
        type: int
      node:
        description: The host on which to kill, when not the one of the rank.
        type: str
      at_step:
        description: Kill when this training step is seen.
        type: int
      after_s:
        description: Kill this many seconds after the first step.
        type: float
  kubeconfig:
    description:
      - For a job with C(placement.backend=kubernetes), the kubeconfig (a path, or its content as a mapping).
      - By default as C(kubectl) finds it.
    type: raw
  context:
    description: The context of the kubeconfig. By default C(job.placement.cluster), else the current one.
    type: str
  cluster_id:
    description:
      - The uid of the namespace C(kube-system). Any other cluster is refused, whatever the kubeconfig points at.
      - Without it, a run that lives on another cluster by its record is refused, and so is a new run on a cluster that
        has none of the rented machines while another has them by the ledger. Give it when they belong to this cluster
        now, such as after its control plane was built anew.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: full
    details: The preflight runs on all hosts, which only reads; nothing is written on the controller or on a host.
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: muster.training.training_job_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Train on two nodes
  muster.training.training_job:
    job:
      name: char-lm
      template: pytorch_ddp
      nodes: 2
      gpus_per_node: 8
      code: {from: path, ref: ./examples/char_lm}
      script: train.py
      args: [--steps, 1000]
      checkpoints: {path: /mnt/checkpoints, interval_steps: 100}
  run_once: true

- name: Kill rank 1 at step 50 and prove that the job resumes
  muster.training.training_job:
    job: "{{ muster_job }}"
    drill: {target: worker, rank: 1, at_step: 50}
  run_once: true

- name: Train on a cluster, through a queue
  muster.training.training_job:
    job:
      name: char-lm
      nodes: 4
      gpus_per_node: 8
      image: registry.example.com/team/char-lm:1.4
      script: train.py
      code: {ref: ./examples/char_lm}
      mounts:
        - {name: checkpoints, path: /checkpoints, pvc: checkpoints}
      checkpoints: {path: /checkpoints}
      placement: {backend: kubernetes, namespace: team, queue: gpus}
    kubeconfig: ~/.kube/team.yaml
  run_once: true

- name: Stop a run
  muster.training.training_job:
    run_id: char-lm-1a2b3c4d
    state: cancelled
  run_once: true
"""

RETURN = r"""
run_id:
  description: The name of the run.
  returned: success
  type: str
  sample: char-lm-1a2b3c4d
run:
  description:
    - The run record, as in C(run.json).
    - Of a run that failed only its state, outcome, cause, detail, exit code and world size.
  returned: when not in check mode
  type: dict
  sample: {"state": "ended", "outcome": "succeeded", "world_size": {"asked": 16, "seen": 16}, "steps_lost": 0}
folder:
  description: The run's folder on the controller, with the record, events, metrics and logs.
  returned: when not in check mode
  type: str
derived:
  description: World size, effective batch, learning-rate advice and price that follow from the job.
  returned: in check mode
  type: dict
checks:
  description: The result of the preflight.
  returned: in check mode
  type: dict
released:
  description: The rented machines that were given back at the run's end (C(release), C(max_cost_usd)), proved gone.
  returned: when any were due
  type: list
  elements: str
not_proved_gone:
  description: What may still bill although it was due, each with C(name), C(provider) and C(problem). The module fails.
  returned: when any were due
  type: list
  elements: dict
kept:
  description:
    - Why a machine that was due was kept, by name; on Kubernetes another run may be on it by then. Where the cluster
      does not tell, the module fails.
  returned: when any were kept
  type: dict
"""
