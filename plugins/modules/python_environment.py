# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the python_environment action; the work is done in plugins/action/python_environment.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
version_added: 0.1.0
short_description: Install Python packages into a virtual environment of a host
description:
  - Makes the environment where it does not exist, and installs the packages with its C(pip).
  - Hosts that share the path, such as several nodes of one machine or homes on a network disk, install one after the
    other, and the second finds what the first installed.
options:
  path:
    description: Folder of the virtual environment.
    type: str
    required: true
  requirements:
    description: Packages as C(pip) names them.
    type: list
    elements: str
    required: true
  base_python:
    description: The interpreter that makes the environment.
    type: str
    default: python3
  wait:
    description:
      - Whether to wait until the packages are installed.
      - With V(false) the host installs in the background; the same task with V(true) waits for it and has its failure.
    type: bool
    default: true
extends_documentation_fragment:
  - muster.training._attributes
attributes:
  check_mode:
    support: partial
    details: Reports a change without looking whether the packages are there.
  diff_mode:
    support: none
  idempotent:
    support: none
    details: C(pip) runs each time; check first with M(muster.training.node_info).
seealso:
  - module: muster.training.node_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Install torch on all hosts at once
  muster.training.python_environment:
    path: ~/training
    requirements: [torch]
    wait: "{{ item }}"
  loop: [false, true]
"""

RETURN = r"""
python:
  description: The interpreter of the environment.
  returned: success
  type: str
"""
