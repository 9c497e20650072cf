# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the preemption_info action; the work is done in plugins/action/preemption_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preemption_info
version_added: 0.1.0
short_description: Wait for a notice that a machine will be taken away
description:
  - Asks all hosts at once whether they will be gone soon. A host asks the metadata service of its cloud (EC2, Compute
    Engine, Azure) and its own systemd for a scheduled shutdown, and sends nothing anywhere else.
  - Returns as soon as one host has a notice, else after O(wait_s) seconds.
  - A provider without such a service says it in its listing, which M(muster.training.fleet_heal) reads.
  - Changes nothing.
options:
  hosts:
    description: The hosts that are asked.
    type: list
    elements: str
    required: true
  named:
    description: Nodes for which a notice came by another way. Nothing is waited for then.
    type: list
    elements: str
    default: []
  wait_s:
    description: Seconds to wait for a notice. With V(0) each host is asked once.
    type: int
    default: 0
  interval_s:
    description: Seconds between two questions. EC2 gives notice two minutes before, others thirty seconds.
    type: int
    default: 5
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.fleet_heal
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Wait a minute for a notice
  muster.training.preemption_info:
    hosts: "{{ groups['muster_nodes'] }}"
    wait_s: 60
  register: preemption
  run_once: true

- name: Let the programs save and replace the machine
  muster.training.fleet_heal:
    notices: "{{ preemption.notices }}"
    noticed_at: "{{ preemption.noticed_at }}"
  run_once: true
"""

RETURN = r"""
notices:
  description: For each host with a notice, or named in O(named), what it says.
  returned: success
  type: dict
  sample: {"gpu-3": "EC2 will terminate it at 2026-11-23T12:00:00Z"}
noticed_at:
  description: When the last question was answered, in UTC.
  returned: success
  type: str
  sample: "2026-11-23T11:58:03Z"
unanswered:
  description: Hosts that did not answer the last question.
  returned: success
  type: list
  elements: str
"""
