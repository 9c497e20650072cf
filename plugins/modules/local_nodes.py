# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the local_nodes action; the work is done in plugins/action/local_nodes.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: local_nodes
version_added: 0.1.0
short_description: Make loopback addresses of the controller usable as nodes
description:
  - Starts an unprivileged C(sshd) as the current user on the first O(count) addresses of C(127.0.0.0/8), with a key
    created for it. The inventory plugin P(muster.training.local#inventory) then reaches its nodes over SSH.
  - If C(sshd) is not installed, nothing is started and the plugin uses the local connection.
options:
  state:
    description: Whether the C(sshd) should be running.
    type: str
    choices: [present, absent]
    default: present
  count:
    description: Number of nodes.
    type: int
    default: 2
  path:
    description: The state directory; the default is C($XDG_STATE_HOME/muster) or C(~/.local/state/muster).
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - plugin: muster.training.local
    plugin_type: inventory
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Two local nodes
  muster.training.local_nodes:
    count: 2
"""

RETURN = r"""
connection:
  description: How the nodes are reached, V(ssh) or V(local).
  returned: success
  type: str
  sample: ssh
reason:
  description: Why they are not reached over SSH; empty when they are.
  returned: success
  type: str
  sample: sshd is not installed
"""
