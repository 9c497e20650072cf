# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the tailscale_key action; the work is done in plugins/action/tailscale_key.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_key
version_added: 0.1.0
short_description: Make or end an auth key of a tailnet
description:
  - Makes a key with which one node joins the tailnet, one-off, ephemeral, approved beforehand, tagged and short-lived
    unless told otherwise. It is written to a file on the controller and is never part of a result.
  - Every key has a line in the cluster's ledger before it is created, so that teardown of the cluster deletes it.
  - Works with Tailscale, and with headscale from 0.30 on. The credential needs the scopes C(auth_keys) and
    C(devices:core).
  - Runs on the controller.
options:
  state:
    description:
      - V(present) makes a new key each time. V(absent) ends O(key_id) or O(key_ids), or without them
        every key that this cluster made.
    type: str
    choices: [present, absent]
    default: present
  tags:
    description:
      - Tags of the devices that join with the key, such as V(tag:rented). Required for O(state=present).
      - An OAuth client may give its own tags, or tags that those own.
    type: list
    elements: str
    default: []
  expiry_s:
    description: For how many seconds the key can be used.
    type: int
    default: 3600
  reusable:
    description: Whether more than one device may join with it.
    type: bool
    default: false
  ephemeral:
    description: Whether the devices leave the tailnet by themselves some time after they have gone offline.
    type: bool
    default: true
  preauthorized:
    description: Whether the devices need no approval.
    type: bool
    default: true
  dest:
    description:
      - The file on the controller that gets the key, readable by its owner only. Required for O(state=present).
    type: path
  run_id:
    description: The run that the key is for. It goes into the ledger.
    type: str
  key_id:
    description: The id of the key to end.
    type: str
  key_ids:
    description: The ids of several keys to end at once.
    type: list
    elements: str
  wait_s:
    description: How long ending and its proof may take.
    type: int
    default: 120
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._tailnet
  - muster.training._api
  - muster.training._state_home
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: O(state=present) makes a key each time, because a key is shown only once.
author:
  - muster.training contributors (@muster-training)
seealso:
  - module: muster.training.tailscale_device
"""

EXAMPLES = r"""
- name: A key for one rented node
  muster.training.tailscale_key:
    cluster: lab
    tags: [tag:rented]
    dest: "{{ key_folder }}/node-1.key"
  register: key

- name: End it when the node has joined
  muster.training.tailscale_key:
    cluster: lab
    state: absent
    key_id: "{{ key.key_id }}"
"""

RETURN = r"""
key_id:
  description: The id of the key.
  returned: success
  type: str
expires:
  description: When the key can no longer be used, as the API says it.
  returned: when O(state=present)
  type: str
dest:
  description: The file that holds the key.
  returned: when O(state=present)
  type: str
revoked:
  description: The ids of the keys that are proved gone.
  returned: when O(state=absent)
  type: list
  elements: str
"""
