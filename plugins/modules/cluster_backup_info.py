# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the cluster_backup_info action; the work is done in plugins/action/cluster_backup_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_backup_info
version_added: 0.1.0
short_description: Decide whether a K3s server can be backed up, or a backup can be restored to it
description:
  - Lists the whole backups of a cluster in the state home and in a bucket, and decides with what was read of the
    host. Asks no machine and changes nothing.
  - A restore is refused for a backup of another cluster than the one whose kubeconfig is in the state home or whose
    server is on the host, one that is damaged or was sealed with another key, a version of K3s that is older than
    that of the backup, data of the cluster that is on the host without O(overwrite), another number of servers than
    fits the datastore, and too little space. A restore that was begun on the host may be ended without O(overwrite).
options:
  purpose:
    description: What is to be done.
    type: str
    choices: [backup, restore]
    default: backup
  machine:
    description:
      - What was read of the host, with the keys C(authority) (the SHA-256 of its CA), C(datastore) (V(sqlite) or
        V(etcd)), C(current) (the version of its K3s), C(active) (whether it runs), C(begun) and C(done) (ids of the
        backup whose restore has begun, and from which its datastore came), C(data_bytes) and C(free_bytes). What is
        not there is empty.
    type: dict
    required: true
  backup:
    description: The id of the backup, or V(newest).
    type: str
    default: newest
  version:
    description: >-
      The version of K3s that the host shall have. The default is that of the collection's list of downloads.
    type: str
  servers:
    description: How many servers the inventory has.
    type: int
    default: 1
  overwrite:
    description: Restore it to a host that has data of the cluster, which are put aside.
    type: bool
    default: false
  again:
    description: Restore the backup once more from which the datastore of the host came.
    type: bool
    default: false
  store:
    description: The name of a binding of an object store, as M(muster.training.cluster_backup) takes it.
    type: str
  key:
    description: The key that seals backups, as M(muster.training.cluster_backup) takes it.
    type: str
  key_file:
    description: A file of the controller with the key.
    type: path
extends_documentation_fragment:
  - muster.training._state_home
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.cluster_backup
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Decide on the newest backup
  muster.training.cluster_backup_info:
    purpose: restore
    machine: "{{ control_plane }}"
  register: restore
"""

RETURN = r"""
backup:
  description: The backup that was chosen, as M(muster.training.cluster_backup) returns it.
  returned: with O(purpose=restore)
  type: dict
restore:
  description: Whether it is to be restored. False where the datastore of the host came from it.
  returned: with O(purpose=restore)
  type: bool
reason:
  description: Why it is not to be restored, else empty.
  returned: with O(purpose=restore)
  type: str
backups:
  description: All whole backups of the cluster, the oldest first.
  returned: success
  type: list
  elements: dict
"""
