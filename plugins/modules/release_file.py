# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the release_file action; the work is done in plugins/action/release_file.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_file
version_added: 0.1.0
short_description: Fetch a file of a release onto the controller, with a SHA-256 that is known or held
description:
  - Returns the path of a file that the collection's list of downloads names, such as the manifests of JobSet or Kueue.
  - Where the list has no SHA-256, that of the first download is written to the lock file and held from then on. A file
    with another one is refused.
options:
  name:
    description: The name in the collection's list of downloads, such as C(jobset) or C(kueue).
    type: str
    required: true
  version:
    description: The version. The default is the one of the list.
    type: str
  architecture:
    description: The architecture, if the file differs by it.
    type: str
    default: any
  source:
    description: >-
      The file itself, a folder that has it, or a URL below which it is. The default is the project's
      release.
    type: str
  lock_file:
    description: The lock file. The default is C(muster-downloads.lock.json) beside the inventory.
    type: path
  content:
    description: Whether the bytes of the file are returned too, such as a chart for C(HelmChart).
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: full
    details: Nothing is downloaded, and RV(path) is null for a file that is not there yet.
  diff_mode:
    support: none
  idempotent:
    support: full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Fetch the manifests of JobSet
  muster.training.release_file:
    name: jobset
  register: jobset
"""

RETURN = r"""
path:
  description: The path of the file on the controller.
  returned: success
  type: str
sha256:
  description: The SHA-256 of the file, null in check mode where it is not known yet.
  returned: success
  type: str
content:
  description: The file in base64. Null in check mode where it is not there yet.
  returned: O(content=true)
  type: str
version:
  description: The version of the file.
  returned: success
  type: str
"""
