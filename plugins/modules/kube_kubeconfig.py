# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the kube_kubeconfig action; the work is done in plugins/action/kube_kubeconfig.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_kubeconfig
version_added: 0.1.0
short_description: Write a kubeconfig with a short-lived token of a service account
description:
  - Writes a kubeconfig that reaches the same API server as the given one, with a token of a ServiceAccount in place of
    the administrator's credential. Its permissions are those of that account.
  - The server issues the token for O(lifetime_s) seconds (or fewer, as it decides) and revokes it when the account is
    deleted.
  - No token is requested while the file is of this server and account and a quarter of its token's lifetime remains.
  - The file has mode 0600. The token appears in no output.
  - Runs on the controller.
options:
  state:
    description: V(absent) removes the file. Its token stays valid until it expires or its account is deleted.
    type: str
    choices: [present, absent]
    default: present
  account:
    description: The ServiceAccount.
    type: str
    required: true
  namespace:
    description: Its namespace, which is also the one of the kubeconfig's context.
    type: str
    required: true
  path:
    description:
      - The path of the kubeconfig, absolute or beginning with C(~).
      - Without it C(teams/NAMESPACE.kubeconfig) in the cluster's folder of the state home.
    type: path
  lifetime_s:
    description: How many seconds the token lasts, 600 at least.
    type: int
    default: 43200
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._kube
  - muster.training._state_home
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: A token is renewed when less than a quarter of its lifetime remains.
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Keep a kubeconfig for the members of a team
  muster.training.kube_kubeconfig:
    account: member
    namespace: vision
    path: ~/vision.kubeconfig
    lifetime_s: 28800
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
expires_at:
  description: When its token expires (RFC 3339), null without a token.
  returned: success
  type: str
account:
  description: The ServiceAccount.
  returned: success
  type: str
namespace:
  description: Its namespace.
  returned: success
  type: str
"""
