# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the service_binding_info action; the work is done in plugins/action/service_binding_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_binding_info
version_added: 0.1.0
short_description: Read the bindings of a cluster and from where each was reachable
description:
  - Reads C(bindings/NAME.json) of the state home on the controller. Nothing is checked anew and nothing is changed.
options:
  name:
    description: The binding. The default is all of them.
    type: str
  services:
    description: >-
      Services as in O(muster.training.service_binding#module:services), of which RV(mounts) says what nodes are to
      mount. The default are the bindings.
    type: raw
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._state_home
seealso:
  - module: muster.training.service_binding
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Read the bindings
  muster.training.service_binding_info:
  register: services

- name: Show from where they were reachable
  ansible.builtin.debug:
    var: services.matrix
"""

RETURN = r"""
bindings:
  description: The bindings, as they are in their files; see RV(muster.training.service_binding#module:bindings).
  returned: success
  type: list
  elements: dict
matrix:
  description: By name of a binding one line with each node and what it saw.
  returned: success
  type: dict
  sample: {store: "gpu-1 (host): ok 2 ms, 310 MB/s"}
mounts:
  description:
    - What the role C(filesystem_client) mounts on nodes, of shared file systems with C(filesystem.mount).
      C(packages) are by family of distributions, C(variables) those of C(ansible-playbook) with the user of a share or
      the address of a volume's metadata. C(volume) is how a program of its own mounts it, null where the kernel does.
  returned: success
  type: list
  elements: dict
  sample:
    - name: nas
      source: 10.0.0.5:/exports/data
      path: /mnt/nas
      type: nfs
      options: nfsvers=4.2,hard,_netdev,nofail
      packages: {Debian: nfs-common, RedHat: nfs-utils}
      variables: {}
      volume: null
unmounted:
  description: Names of O(services) with C(state=absent), of which nothing stays mounted by the role.
  returned: success
  type: list
  elements: str
"""
