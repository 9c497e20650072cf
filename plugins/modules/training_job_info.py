# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_job_info action; the work is done in plugins/action/training_job_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_job_info
version_added: 0.1.0
short_description: List recorded training runs and read their logs
description:
  - Reads the run records and logs that the controller keeps; they are kept when the hosts are deleted.
options:
  run_id:
    description: Name of one run. The default is all runs, for logs the newest one.
    type: str
  live:
    description:
      - Whether to read the state of runs that have not ended from their hosts, of those in pods from their cluster.
      - Renews the leases of rented machines on which such a run is running (not in check mode).
    type: bool
    default: false
  logs:
    description: Return this many last lines of each log of the run instead of records.
    type: int
  ranks:
    description: Whether to fetch the logs of every rank and attempt from the hosts first.
    type: bool
    default: false
  kubeconfig:
    description: The kubeconfig for runs in pods. By default as C(kubectl) finds it.
    type: raw
  context:
    description: Its context. By default the one with which the run was submitted.
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
    support: full
seealso:
  - module: muster.training.training_job
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: List all runs
  muster.training.training_job_info:
  register: history
  run_once: true

- name: Read the last lines of the newest run
  muster.training.training_job_info:
    logs: 20
  run_once: true
"""

RETURN = r"""
runs:
  description:
    - Run records, the newest first; with O(live) each has the state of its units under C(live), a run in pods the state
      that its cluster reports (C(phase), C(detail)).
  returned: without O(logs)
  type: list
  elements: dict
summary:
  description: The few fields of each record that a list shows.
  returned: without O(logs)
  type: list
  elements: dict
logs:
  description: Last lines by log file.
  returned: with O(logs)
  type: dict
problems:
  description: Hosts whose rank logs could not be fetched, with the reason.
  returned: with O(logs)
  type: dict
folder:
  description: The run's folder on the controller.
  returned: with O(logs)
  type: str
"""
