# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the usage_info action; the work is done in plugins/action/usage_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: usage_info
version_added: 0.1.0
short_description: Add up GPU-hours and dollars of runs, and of machines without one
description:
  - Reads the ledger of leases and the records of runs that the controller keeps. Changes nothing and asks no provider.
  - A rented machine costs from its order until its deletion was verified, or until now. Its dollars are shared out over
    that time, to the runs that held it (evenly among those that held it at once) and to rows without a job, so that all
    rows together are what the ledger says.
  - Of a machine of your own only the time is known that runs held it, at the price that the inventory says.
options:
  by:
    description:
      - By what rows are told apart, any of C(month) (UTC), C(user) (who submitted the run), C(team) (its namespace),
        C(job), C(run), C(node), and, of rented machines, C(provider) and C(gpu) (the model that was ordered).
    type: list
    elements: str
    default: [month, user, team, job]
  since:
    description:
      - The beginning, a date (UTC) or a timestamp such as C(2026-11-01T12:00:00Z). The default is the first entry.
    type: str
  before:
    description: The end, as O(since). The default is now.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._state_home
seealso:
  - module: muster.training.training_job_info
  - module: muster.training.node_pool
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Add up November by user and node
  muster.training.usage_info:
    by: [user, node]
    since: "2026-11-01"
    before: "2026-12-01"
  register: usage
  run_once: true

- name: Show the dollars of machines that no run held
  ansible.builtin.debug:
    msg: "{{ usage.rows | rejectattr('user') | sum(attribute='usd') }} USD were idle"
  run_once: true
"""

RETURN = r"""
rows:
  description:
    - One mapping for each combination of O(by), with the keys of it, C(gpu_hours), C(idle_gpu_hours), C(node_hours),
      C(useful_node_hours), C(shared_node_hours) and C(usd). Where C(job) and C(user) are null no run held the machine.
    - C(useful_node_hours) are those of a run's machines that went to steps which count, by the account of the run.
    - C(shared_node_hours) are those of machines that several runs held at once. Each run has its part of them and of
      their dollars here, and all of it in its own record.
    - C(unknown) has the node-hours of which a figure is not known; they are not in that figure.
  returned: success
  type: list
  elements: dict
total:
  description: The same figures over all rows.
  returned: success
  type: dict
ledger_usd:
  description:
    - Dollars of the rented machines in that time by the ledger alone. Those without a price, and orders without an
      answer, are left out.
  returned: success
  type: float
warnings:
  description: Lines of the ledger that cannot be read.
  returned: success
  type: list
  elements: str
table:
  description: The rows as lines of a table, for people. A figure with C(+) has parts that are not known.
  returned: success
  type: list
  elements: str
"""
