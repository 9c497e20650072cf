# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the tailscale_device action; the work is done in plugins/action/tailscale_device.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_device
version_added: 0.1.0
short_description: Set tags, routes and approval of a tailnet's device, or delete it
description:
  - Sets what is given and leaves the rest as it is. Lists are whole.
  - Names repeat in a tailnet, ids do not. A name that two devices have is refused, unless exactly one of them is
    online. To delete, such a name is always refused.
  - The tailnet's policy is touched only with O(policy_file). Then it is validated by the server first, and replaced
    only if it has not changed meanwhile.
  - Works with Tailscale, and with headscale from 0.30 on.
  - Runs on the controller.
options:
  state:
    description: V(absent) deletes the device. A device that is not there is fine.
    type: str
    choices: [present, absent]
    default: present
  device_id:
    description: The id of the device (C(nodeId)).
    type: str
  name:
    description: Its MagicDNS name, with or without the tailnet's domain, or its host name.
    type: str
  tags:
    description: All its tags, such as V(tag:rented).
    type: list
    elements: str
  routes:
    description: All routes that are enabled. The device must advertise them.
    type: list
    elements: str
  authorized:
    description: Whether the device is approved.
    type: bool
  policy_file:
    description: A file (HuJSON) that shall be the tailnet's whole policy.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._tailnet
  - muster.training._api
attributes:
  check_mode:
    support: full
    details: A policy is sent to the server to be validated, which changes nothing.
  diff_mode:
    support: full
  idempotent:
    support: full
author:
  - muster.training contributors (@muster-training)
seealso:
  - module: muster.training.tailscale_key
"""

EXAMPLES = r"""
- name: Approve the pod routes of a node
  muster.training.tailscale_device:
    name: spark-01
    routes: [10.42.1.0/24]

- name: Delete a device by its id
  muster.training.tailscale_device:
    device_id: nHcQAY5CNTRL
    state: absent
"""

RETURN = r"""
device:
  description: The device as it is after the changes, null when it was deleted or O(policy_file) was given.
  returned: success
  type: dict
  contains:
    id:
      description: Its id.
      type: str
    name:
      description: Its MagicDNS name.
      type: str
    hostname:
      description: Its host name.
      type: str
    online:
      description: Whether it is connected, null where the server does not say.
      type: bool
    authorized:
      description: Whether it is approved.
      type: bool
    tags:
      description: Its tags.
      type: list
      elements: str
    routes:
      description: The routes that are enabled.
      type: list
      elements: str
    advertised_routes:
      description: The routes that it advertises.
      type: list
      elements: str
"""
