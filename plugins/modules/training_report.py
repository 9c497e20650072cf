# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_report action; the work is done in plugins/action/training_report.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_report
version_added: 0.1.0
short_description: Write the report of a training run
description:
  - Writes one self-contained HTML page, a JSON summary and a JUnit file from the records that the controller keeps of a
    run. The hosts are not needed.
  - The plots are drawn with matplotlib where it is installed on the controller. Without it the page has no plots.
options:
  run_id:
    description: Name of the run; the default is the newest one.
    type: str
  compare:
    description: Names of several runs to compare on one page (C(compare.html), C(compare.json)) instead.
    type: list
    elements: str
    default: []
  all:
    description:
      - Writes the page of all runs (C(runs.html)) instead, a line each with outcome, steps, newest checkpoint, loss and
        cost, and a link to the page of each run that has one. The newest is the first.
    type: bool
    default: false
  limit:
    description: How many of the newest runs O(all) shows. The page says how many are left out.
    type: int
    default: 200
  path:
    description: Folder to write to; the default is C(report) in the run's folder, of O(all) the cluster's folder.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details: The files are written again each time.
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Report on the newest run
  muster.training.training_report:
  register: report

- name: Compare two runs
  muster.training.training_report:
    compare: [char-lm-1a2b3c4d, char-lm-5e6f7a8b]

- name: Write the page of all runs
  muster.training.training_report:
    all: true
"""

RETURN = r"""
html:
  description: The page.
  returned: success
  type: str
json:
  description: The machine-readable summary.
  returned: when one run is reported
  type: str
junit:
  description: The JUnit file.
  returned: when one run is reported
  type: str
"""
