# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the service_binding action; the work is done in plugins/action/service_binding.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_binding
version_added: 0.1.0
short_description: Bind supporting services, checked from every node
description:
  - Checks all services from all hosts at once and writes the binding of each to C(bindings/NAME.json) in the folder of
    the cluster in the state home. When one is refused, none is bound, and the error names all that failed. Jobs name
    bindings; a binding holds references to secrets and no secret.
  - The check of an object store lists each bucket, then writes, reads, reads in part, reads what another node wrote,
    and deletes an object of 4 MiB. The controller signs the requests with C(botocore). Nodes get signed addresses for
    15 minutes, and neither keys nor packages. A bucket is never created, and nothing is left in it.
  - The service itself is never changed, also not when its binding is removed. Of one with C(mode=deploy), which
    M(muster.training.service_deploy) has deployed, the buckets are made first.
options:
  services:
    description:
      - The services, a list of mappings. Each needs C(name), C(kind) (V(object_store), V(secrets), V(tracking),
        V(registry), V(shared_filesystem) or V(monitoring)) and C(mode) (V(none), V(bind) or V(deploy)); one of mode
        V(none) is left out. All keys are listed in the guide to services.
      - C(state=absent) removes the binding.
    type: raw
    required: true
  hosts:
    description: The hosts that must reach the services. The default is all hosts of the play.
    type: list
    elements: str
  require_all:
    description:
      - Whether a service that one of the hosts cannot use is refused. With V(false) it is bound when at least one host
        can use it, and jobs on the others are refused.
    type: bool
    default: true
  pods:
    description:
      - Also check object stores as pods see them, by one short Job on each Node that takes pods of jobs. A mapping with
        C(namespace), C(image) (one with Python, such as that of the jobs), C(python) and C(pull_secrets).
      - Where the user may not read Nodes, it is one pod where the scheduler places it. C(localhost) alone is then not
        asked, unless the inventory describes it as a machine.
      - Jobs in pods need it, and so does a service that is deployed in the cluster, which hosts do not reach.
    type: raw
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._kube
  - muster.training._state_home
attributes:
  check_mode:
    support: full
    details: Buckets are listed and nothing is written, neither to a bucket nor to the state home.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: A check that sees other latencies changes the file and is not a change.
seealso:
  - module: muster.training.service_binding_info
  - module: muster.training.training_job
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Bind a bucket for checkpoints
  muster.training.service_binding:
    services:
      - name: store
        kind: object_store
        mode: bind
        endpoint: https://s3.example.com
        region: eu-central-1
        secret_ref: {from: env}
        resources: [{purpose: checkpoints, ref: training/checkpoints}]
  run_once: true
"""

RETURN = r"""
bindings:
  description: The bindings, as they are in their files, without those that were removed.
  returned: success
  type: list
  elements: dict
  sample:
    - name: store
      component: object_store
      mode: bind
      endpoint: https://s3.example.com
      reachable_from: [{node: gpu-1, vantage: host, ok: true, latency_ms: 2.1, mb_per_s: 310.0}]
"""
