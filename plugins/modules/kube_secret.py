# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_secret action; the work is done in plugins/action/kube_secret.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_secret
version_added: 0.1.0
short_description: Create, update or delete a Kubernetes Secret
description:
  - Creates, updates or deletes a Secret. Nothing is sent when its values are as wanted.
  - The values appear in no output, diff or error. The result has the names of the keys and a hash.
options:
  state:
    description: V(absent) deletes the Secret.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: The name of the Secret.
    type: str
    required: true
  namespace:
    description: Its namespace. Without it that of the kubeconfig's context.
    type: str
  type:
    description: Its type. It cannot be changed later.
    type: str
    default: Opaque
  data:
    description: Values as text by key. A key that is left out later is removed.
    type: dict
  data_base64:
    description: Values in base64 by key, for what is not text.
    type: dict
  labels:
    description: Labels of the Secret.
    type: dict
  annotations:
    description: Annotations of the Secret.
    type: dict
  field_manager:
    description: The field manager under which the server records the applied fields.
    type: str
    default: muster
  force_conflicts:
    description: Take over keys that another field manager owns with another value.
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full_with_diff
  - muster.training._kube
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Give the job its token
  muster.training.kube_secret:
    name: tracking
    namespace: training
    data:
      token: "{{ vault_tracking_token }}"
  register: tracking
"""

RETURN = r"""
action:
  description: V(created), V(configured), V(adopted), V(unchanged) or V(removed).
  returned: success
  type: str
name:
  description: The name of the Secret.
  returned: success
  type: str
namespace:
  description: Its namespace.
  returned: success
  type: str
data_keys:
  description: The names of its keys.
  returned: success
  type: list
  elements: str
hash:
  description:
    - Hex digits that change when a value changes, for an annotation that restarts what reads the Secret. Keyed with the
      uid of the Secret, so it differs between clusters. Null for a deleted Secret and for one that check mode did not
      create.
  returned: success
  type: str
"""
