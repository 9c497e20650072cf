# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_job_info action; the work is done in plugins/action/training_job_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_job_info
version_added: 0.1.0
short_description: List recorded training runs, and read or follow their logs
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
  follow:
    description:
      - Whether to say each new line of the logs until the run has ended, with O(logs).
      - A run in pods must be followed by M(muster.training.training_job) from here, which fetches its logs.
    type: bool
    default: false
  show:
    description: Whether to say the lines, too, as O(follow) does.
    type: bool
    default: false
  rank:
    description: Only the lines of this rank, with O(logs), as torchrun, mpirun or the node of a command number it.
    type: int
  grep:
    description: Only the lines in which this regular expression is found, with O(logs).
    type: str
  limit:
    description: Return only this many of the newest runs. The default is all of them.
    type: int
  query:
    description:
      - A JMESPath expression on C(runs) and C(summary), such as C(runs[?outcome=='failed'].run_id).
      - Needs the Python package C(jmespath).
    type: str
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
- name: List all runs
  muster.training.training_job_info:
  register: history
  run_once: true

- name: Read the last lines of the newest run
  muster.training.training_job_info:
    logs: 20
  run_once: true

- name: Follow what rank 0 says of its loss
  muster.training.training_job_info:
    logs: 20
    follow: true
    rank: 0
    grep: loss
  run_once: true

- name: Name the runs that failed
  muster.training.training_job_info:
    query: runs[?outcome=='failed'].run_id
  register: failed
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
table:
  description: The runs as lines of a table, for people.
  returned: without O(logs)
  type: list
  elements: str
selected:
  description: What O(query) selects.
  returned: with O(query)
  type: raw
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
