# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the mesh_node action; the work is done in plugins/action/mesh_node.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mesh_node
version_added: 0.1.0
short_description: Bring a machine into a tailnet, or out of it again
description:
  - Installs Tailscale where it is missing, joins a tailnet of Tailscale or headscale with a key, and sets the
    preferences that are named. A machine that is in the tailnet already stays in it, with all other preferences as its
    owner set them. C(tailscale up --reset) is never used.
  - The key is read from a file on the controller and is a file in C(/run) of the machine for as long as C(tailscale up)
    reads it. It is never an argument of a command.
  - With O(state=absent) a machine that joined by this module leaves, the former values of its preferences are restored,
    and what was installed is removed. Its device is deleted with M(muster.training.tailscale_device).
  - A machine in another tailnet is refused.
options:
  state:
    description: Whether the machine is in the mesh.
    type: str
    choices: [present, absent]
    default: present
  auth_key_file:
    description:
      - A file on the controller with the key to join with, such as M(muster.training.tailscale_key) writes. It is
        needed only for a machine that is not in the mesh yet.
    type: path
  login_server:
    description: The URL of a headscale. Empty for Tailscale's own, or for the tailnet that the machine is in.
    type: str
  hostname:
    description: The machine's name in the tailnet. Left as it is when not given.
    type: str
  node_name:
    description: The name that a machine gets when it joins. The default is the name of the host in the inventory.
    type: str
  accept_dns:
    description: Whether the machine uses the tailnet's DNS. Left as it is when not given.
    type: bool
  accept_routes:
    description: Whether the machine uses the routes of other machines. Left as it is when not given.
    type: bool
  advertise_routes:
    description: The networks that the machine offers to others, all of them. Left as they are when not given.
    type: list
    elements: str
  ssh:
    description: Whether Tailscale SSH is on. Left as it is when not given.
    type: bool
  userspace:
    description:
      - For a container without C(/dev/net/tun). Other machines reach its SSH, nothing on it can use the mesh, so NCCL,
        Gloo and MPI cannot.
    type: bool
    default: false
  port:
    description: The UDP port of a tailscaled that is installed; V(0) for any.
    type: int
    default: 41641
  version:
    description: The version to install. The default is the one of the collection's list of downloads.
    type: str
  source:
    description:
      - A folder of the controller with the archive of the release, or a URL below which it is. Empty for the vendor's.
    type: str
  lock_file:
    description:
      - Where the SHA-256 of a first download is written. The default is C(muster-downloads.lock.json) beside the
        inventory.
    type: path
  wait_s:
    description: How long joining may take.
    type: int
    default: 60
  peers:
    description:
      - Other machines of the mesh, by name or by address there. The path to them is tried and told as RV(path); where
        it is not direct, this takes up to three seconds.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
author:
  - muster.training contributors (@muster-training)
seealso:
  - module: muster.training.tailscale_key
  - module: muster.training.tailscale_device
"""

EXAMPLES = r"""
- name: A key for this machine
  muster.training.tailscale_key:
    tags: [tag:muster]
    dest: "{{ key_folder }}/{{ inventory_hostname }}.key"
  delegate_to: localhost

- name: Join the tailnet
  muster.training.mesh_node:
    auth_key_file: "{{ key_folder }}/{{ inventory_hostname }}.key"
    hostname: "{{ inventory_hostname }}"

- name: Leave it again
  muster.training.mesh_node:
    state: absent
"""

RETURN = r"""
joined:
  description: Whether the machine is in a tailnet. In check mode, whether it was before.
  returned: success
  type: bool
steps:
  description: What was done, or would be done in check mode.
  returned: success
  type: list
  elements: str
  sample: [install, start, join, "set --accept-dns=false"]
addresses:
  description: The machine's addresses in the mesh.
  returned: success
  type: list
  elements: str
name:
  description: The machine's name in the tailnet.
  returned: success
  type: str
device_id:
  description: The id of its device.
  returned: success
  type: str
path:
  description:
    - V(direct), or V(relayed) for a machine that reaches none of O(peers) but through a relay. Null where none of them
      answers, and without O(peers).
  returned: success
  type: str
names:
  description: The names of services that the role C(mesh) has written into C(/etc/hosts).
  returned: success
  type: list
  elements: str
login_server:
  description: The control server of its tailnet.
  returned: success
  type: str
"""
