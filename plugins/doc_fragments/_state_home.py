# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options shared by everything that reads or writes the state home."""

from __future__ import annotations


class ModuleDocFragment:
    """Private doc fragment of the collection."""

    DOCUMENTATION = r"""
options:
  cluster:
    description:
      - The name of the cluster; its runs, ledger and bindings lie in a folder of this name in the state home.
    type: str
    default: default
  state_home:
    description:
      - Where the controller keeps its state, a mapping with the keys C(path) and C(store) (V(local), V(s3) or
        V(kubernetes)).
      - With V(s3) the key C(s3) has C(endpoint), C(bucket) (C(BUCKET) or C(BUCKET/PREFIX)), C(region), C(addressing),
        C(ca) and C(secret_ref).
      - With V(kubernetes) the key C(kubernetes) has C(namespace), C(kubeconfig) and C(context).
      - With either, C(path) is a working copy.
      - The default path is C($XDG_STATE_HOME/muster), or C(~/.local/state/muster).
    type: dict
    default: {}
"""
