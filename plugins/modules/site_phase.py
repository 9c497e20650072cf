# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the site_phase action; the work is done in plugins/action/site_phase.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_phase
version_added: 0.1.0
short_description: Measure the steps of the playbook site
description:
  - Notes in C(site.json) of the cluster's folder in the state home that a step begins, and ends the one before it. Each
    C(ansible-playbook) starts the file anew.
  - Never reports a change, as it is a measurement.
options:
  name:
    description: The name of the step that begins. Without it the last one ends.
    type: str
  run_id:
    description: The run of a job whose folder gets a copy of the file, for its report.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: full
    details: Nothing is written.
  diff_mode:
    support: none
  idempotent:
    support: full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Note that the cluster's turn has come
  muster.training.site_phase:
    name: cluster
"""

RETURN = r"""
phases:
  description: The steps so far, with the keys name, started (Unix seconds) and seconds (null while it is running).
  returned: success
  type: list
  elements: dict
table:
  description: The steps that have ended, a line for each.
  returned: success
  type: list
  elements: str
file:
  description: The path of the file.
  returned: outside check mode
  type: str
"""
