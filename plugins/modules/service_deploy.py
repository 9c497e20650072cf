# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the service_deploy action; the work is done in plugins/action/service_deploy.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_deploy
version_added: 0.1.0
short_description: Deploy a supporting service on a host or in a cluster, or remove it
description:
  - Deploys one service of C(mode=deploy). On a host that is a program of a release with a SHA-256 that is known or
    held, and a systemd unit with a user of its own. In a cluster it is a pod on one permanent Node, with a Service, a
    Secret and a claim for its data. The roles of the kinds, such as C(object_store), call this module.
  - Its credentials are made once. They are in C(services/NAME.credentials) in the folder of the cluster in the state
    home (0600), and where the service reads them. They are in no argument, variable, log or diff.
  - A machine that is rented is refused, because what a service stores there is gone when it is terminated.
  - M(muster.training.service_binding) then makes the buckets, checks the service from all nodes and binds it.
options:
  service:
    description:
      - One entry of C(muster_services), with C(mode=deploy) and C(deploy). The guide to services lists all keys.
      - With C(deploy.tls) an object store serves HTTPS with a certificate of its own; the default is HTTP. OpenBao
        always serves HTTPS.
      - C(provider) chooses the program. For C(object_store) it is C(seaweedfs), C(rustfs) or C(minio), whose project
        has ended. For C(secrets) it is C(openbao) or C(vault), whose key is kept on the controller, and which is sealed
        after each start until this module runs again. For C(tracking) it is C(mlflow), which pip installs on a host
        into an environment of its own. Its files go to the bucket for artifacts of the binding C(deploy.artifacts).
      - For C(monitoring) it is C(prometheus), C(alertmanager), or C(grafana) in clusters. C(deploy.alertmanager) is the
        address or the service that gets the alerts of Prometheus, C(deploy.prometheus) what Grafana reads;
        C(deploy.webhook) points at the address that Alertmanager tells, C(deploy.config) is a configuration of its own.
      - Of C(shared_filesystem) it says what the host gets (RV(server)) and records where the file system is; the
        role C(shared_filesystem) does the work on the host. C(provider) is C(nfs) or C(nfs_ganesha). With C(juicefs) it
        makes a volume over the bucket for files of the binding C(deploy.store), once, with its metadata in the database
        whose address is in the variable that C(deploy.database) points to; its program must be on the host.
        With C(csi_nfs) it says what a cluster gets so that claims are folders of the file system C(deploy.export).
      - With C(state=absent) what was made is removed. What the service stores stays, with its credentials, unless
        C(deploy.delete_data) is set.
    type: raw
    required: true
  source:
    description:
      - A folder of the controller that holds the archive of the release, or a URL below which it is. The default is
        the project's release, from which the host downloads.
      - For C(tracking), the URL of an index of packages. The default is that of the host's own settings of pip.
    type: str
  lock_file:
    description: The lock file. The default is C(muster-downloads.lock.json) beside the inventory.
    type: path
  wait_s:
    description: How many seconds the service may take until it is ready.
    type: int
    default: 120
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
  - muster.training._state_home
seealso:
  - module: muster.training.service_binding
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Deploy an object store on a host
  muster.training.service_deploy:
    service:
      name: store
      kind: object_store
      mode: deploy
      deploy: {host: storage-1}
      resources: [{purpose: checkpoints, ref: checkpoints}]
  become: true
  run_once: true
"""

RETURN = r"""
endpoint:
  description: The address of the service, null for one that was removed.
  returned: success
  type: str
  sample: http://10.0.0.5:8333
place:
  description: The host, or the namespace and the Node.
  returned: success
  type: str
kept:
  description: Where the data is that a removal has kept, null without any.
  returned: when it was removed
  type: str
server:
  description:
    - What exports a shared file system. C(host) is its machine, C(export) the folder there, C(clients) who may mount
      it, C(listen) the address that it answers at, C(fsid) what nodes know it by; C(provider), C(state) and
      C(delete_data) are those of the service.
    - Of a volume of JuiceFS C(program) and C(version) are what makes it, and C(needs_program) says whether that is
      to be on the host.
  returned: for a shared file system
  type: dict
writes:
  description: How many requests could have changed something in the cluster.
  returned: in clusters
  type: int
"""
