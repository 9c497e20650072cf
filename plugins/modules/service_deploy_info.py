# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the service_deploy_info action; the work is done in plugins/action/service_deploy_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_deploy_info
version_added: 0.1.0
short_description: Read which services are not yet deployed or bound as they are asked for
description:
  - Asks the cluster about all services of C(mode=deploy) at once, so that those that are deployed cost no role and no
    check of their own. The playbook C(services) begins with it.
  - Nothing is changed. Objects that differ are sent to the API server as a dry run.
options:
  services:
    description: Services as in O(muster.training.service_binding#module:services).
    type: raw
    required: true
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._kube
  - muster.training._state_home
seealso:
  - module: muster.training.service_deploy
  - module: muster.training.service_binding
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Read what is to be done
  muster.training.service_deploy_info:
    services: "{{ muster_services }}"
  run_once: true
  register: found
"""

RETURN = r"""
pending:
  description:
    - The names of services of C(mode=deploy) that are to be deployed or removed. A service in a cluster is not among
      them while it is as it is asked for, is recorded and has a pod that is ready.
    - A service on a host, a shared file system and one with C(state=absent) are always among them; their roles look.
  returned: success
  type: list
  elements: str
  sample: [mlflow]
unbound:
  description: The names of services without a binding, or with one that is not what is asked for.
  returned: success
  type: list
  elements: str
  sample: [mlflow]
"""
