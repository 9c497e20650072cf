# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the cluster_backup action; the work is done in plugins/action/cluster_backup.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_backup
version_added: 0.1.0
short_description: Keep the archive of a K3s server as a backup, or bring one back to a machine
description:
  - With O(state=kept), takes an archive that was made on the host, such as by the playbook C(backup), over the
    connection that Ansible has to it. It is sealed (AES-256-GCM) before it is written to C(backups/ID/) in the state
    home, with mode 0600, and goes to the bucket of O(store) in that form alone.
  - C(manifest.json) is written last. An archive without a whole one does not count.
  - With O(state=placed), brings a backup to the host as O(archive), from the state home or, where it is not there,
    from the bucket. One that is damaged, was changed or was sealed with another key is refused.
  - Two processes of one controller do not back up or restore a cluster at the same time; the second is refused.
  - Whether it may be done is decided by M(muster.training.cluster_backup_info), which comes before.
options:
  state:
    description: Whether the archive of the host is kept as a backup, or a backup is placed on the host.
    type: str
    choices: [kept, placed]
    default: kept
  archive:
    description: The archive on the host. With O(state=placed) it is written with mode 0600.
    type: str
    required: true
  machine:
    description: >-
      What was read of the host, as M(muster.training.cluster_backup_info) takes it. Required with O(state=kept).
    type: dict
  backup:
    description: With O(state=placed), the id of the backup, or V(newest).
    type: str
    default: newest
  store:
    description:
      - The name of a binding of an object store. Backups are in its bucket for C(artifacts), below
        C(muster-backups/CLUSTER/), too.
    type: str
  keep:
    description: >-
      So many backups of the cluster stay, in the state home and in the bucket. Older ones are removed after the new
      one is whole.
    type: int
    default: 7
  key:
    description:
      - The key that seals backups, text of at least 8 characters. Without it and O(key_file), it is C(backup.key) in
        the folder of the cluster in the state home, which is made with the first backup. Keep a copy of it
        elsewhere; without the key no backup can be read.
    type: str
  key_file:
    description: A file of the controller with the key.
    type: path
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details: A backup is a new one each time, and an archive is placed each time.
extends_documentation_fragment:
  - muster.training._state_home
  - muster.training._attributes
seealso:
  - module: muster.training.cluster_backup_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Keep an archive as a backup
  muster.training.cluster_backup:
    archive: /var/lib/rancher/k3s/muster/backup/archive.tar.gz
    machine: "{{ control_plane }}"
    store: minio
    keep: 14
  become: true

- name: Bring the newest backup to a machine
  muster.training.cluster_backup:
    state: placed
    archive: /var/lib/rancher/k3s/muster/backup/archive.tar.gz
  become: true
"""

RETURN = r"""
backup:
  description:
    - The backup with the keys id, cluster, made_at, host, datastore (C(sqlite) or C(etcd)), k3s_version, authority
      (the SHA-256 of the CA of the cluster), plain_bytes, data_bytes (of the datastore), size and sha256 (of the
      sealed archive).
  returned: outside check mode
  type: dict
places:
  description: Where it is, a folder and the name of a binding with the id.
  returned: with O(state=kept), outside check mode
  type: list
  elements: str
removed:
  description: The ids of backups that were removed.
  returned: with O(state=kept), outside check mode
  type: list
  elements: str
"""
