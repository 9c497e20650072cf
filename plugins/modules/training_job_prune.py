# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_job_prune action; the work is done in plugins/action/training_job_prune.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_job_prune
version_added: 0.1.0
short_description: Remove what old runs left on hosts and controller
description:
  - Removes the folders of runs that have ended from the hosts of the play, with checkpoints that are inside them, and
    copies of code that no run needs. Checkpoints in O(muster.training.training_job#module:job.checkpoints.path) stay.
  - A run stays whose newest complete checkpoint would be removed with it and has no copy, which is in the bucket of the
    job or where M(muster.training.training_job_fetch) brought it. The table names each run that is removed or stays.
  - A run that has not ended, that another controller owns or that this controller does not know stays.
  - Check mode says how much disk would be freed.
options:
  keep:
    description: How many of the newest runs stay.
    type: int
    default: 20
  older_than_days:
    description: Only runs that ended at least this many days ago.
    type: float
    default: 0
  run_ids:
    description: Names of the runs to remove instead, whatever their age.
    type: list
    elements: str
    default: []
  controller:
    description:
      - Whether to remove their logs, metrics, reports and fetched files on the controller too. The record of a run
        stays there, marked with the day, so that usage, status and M(muster.training.training_job) still know it.
    type: bool
    default: false
  unfetched:
    description: Whether to remove runs whose newest checkpoint has no copy, too. It is lost then.
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._state_home
seealso:
  - module: muster.training.training_job_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Keep the five newest runs, and those of the last week
  muster.training.training_job_prune:
    keep: 5
    older_than_days: 7
  run_once: true
"""

RETURN = r"""
runs:
  description: The runs that were removed, or would be.
  returned: success
  type: list
  elements: str
kept:
  description: The runs that stay although they were chosen, with the reason.
  returned: success
  type: dict
freed_bytes:
  description: Bytes of the disk by host, and C(controller) with O(controller).
  returned: success
  type: dict
problems:
  description: Hosts that could not be asked or cleaned, with the reason. The task fails then, once the others are done.
  returned: success
  type: dict
table:
  description: The same as lines, for people.
  returned: success
  type: list
  elements: str
"""
