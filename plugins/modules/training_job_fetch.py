# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_job_fetch action; the work is done in plugins/action/training_job_fetch.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_job_fetch
version_added: 0.1.0
short_description: Fetch checkpoints and other files of a run to the controller
description:
  - Copies files of a run from its nodes to the controller, each file once. Its checksum is compared, and an interrupted
    copy continues.
  - For a run in pods a short Job is created whose pod has the mount of the checkpoints, and is deleted afterwards; on
    the nodes' own disks, a pod on each node of the run. Files are read in it as C(kubectl exec) would, which needs the
    Python package C(kubernetes) on the controller. Check mode creates none, and lists no files.
  - Checkpoints of a job with C(checkpoints.binding) are fetched from the bucket where no node has one, with the
    credentials of the binding. The controller reads it; where it does not reach the store, a host of the run or a pod
    reads for it.
  - Where several nodes or ranks save files of their own, the newest checkpoint is that of the newest step that all have
    saved. Without such a step the task fails, and O(paths) brings what there is.
  - A file in O(dest) that is of another run, or that was not fetched, is not replaced, and the task fails.
  - A file that differs between the nodes, such as each node's part of a checkpoint, is written below the node's name.
options:
  run_id:
    description: Name of the run; the default is the newest one.
    type: str
  source:
    description:
      - Whether O(paths) are in the run's checkpoint folder or in its own folder on the nodes. V(run) is for runs on
        hosts.
      - V(bucket) asks no node, and fetches the newest checkpoint that all nodes have stored.
    type: str
    choices: [checkpoints, run, bucket]
    default: checkpoints
  paths:
    description:
      - Files and folders as shell patterns, relative to the folder that O(source) names.
      - The default is the newest complete checkpoint.
    type: list
    elements: str
    default: []
  model:
    description:
      - A registered model of the tracker, as C(NAME) or C(NAME@ALIAS) (default alias C(trained)), instead of O(run_id)
        and O(paths). The checkpoint that is its version is fetched, as a job with C(tracking.model) registered it.
    type: str
  tracker:
    description: The binding of the tracker of O(model). The default is the only one.
    type: str
  dest:
    description: Folder on the controller. The default is C(files) in the run's folder.
    type: path
  kubeconfig:
    description: The kubeconfig for runs in pods. By default as C(kubectl) finds it.
    type: raw
  context:
    description: The context of O(kubeconfig). By default the one with which the run was submitted.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._state_home
seealso:
  - module: muster.training.training_job
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Fetch the newest checkpoint of the newest run
  muster.training.training_job_fetch:
    dest: ./model
  run_once: true

- name: Fetch what the program wrote beside its checkpoints
  muster.training.training_job_fetch:
    run_id: char-lm-1a2b3c4d
    source: run
    paths: [out/*.json]
  run_once: true

- name: Fetch what the alias of a registered model stands for
  muster.training.training_job_fetch:
    model: char-lm@trained
    dest: ./model

- name: Fetch the newest checkpoint from the bucket of the job, whose machines are gone
  muster.training.training_job_fetch:
    run_id: char-lm-1a2b3c4d
    source: bucket
    dest: ./model
"""

RETURN = r"""
run_id:
  description: Name of the run.
  returned: success
  type: str
dest:
  description: The folder on the controller.
  returned: success
  type: str
files:
  description: The files in it, those that were there before included.
  returned: success
  type: list
  elements: str
bytes:
  description: Bytes that were fetched, or would be.
  returned: success
  type: int
msg:
  description: The same in one line.
  returned: success
  type: str
"""
