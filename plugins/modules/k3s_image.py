# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the k3s_image action; the work is done in plugins/action/k3s_image.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_image
version_added: 0.1.0
short_description: Import an image from an archive into K3s on a machine
description:
  - Sends an archive of the controller over SSH and imports it into the containerd of K3s, so that pods run the image
    without a registry. The SHA-256 of the archive is compared on arrival.
  - An image that is there with the digest that its import had is not sent again.
  - The image is pinned, so that kubelet does not remove it to free disk space. It goes with K3s
    (M(muster.training.k3s_node)).
options:
  name:
    description: The name of the image as pods write it. The archive must hold it.
    type: str
    required: true
  archive:
    description:
      - An archive of the controller as C(docker save), C(podman save) or C(skopeo copy) writes it, or a folder that
        M(muster.training.release_bundle) has made. Relative to the playbook's folder; with a playbook of this
        collection, to the working directory.
    type: path
    required: true
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
seealso:
  - module: muster.training.k3s_node
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Import the image of the job
  muster.training.k3s_image:
    name: registry.example.com/train:1.0
    archive: train-1.0.tar
  become: true
"""

RETURN = r"""
image:
  description: The full name of the image.
  returned: success
  type: str
digest:
  description: Its digest in containerd. Null in check mode where it would be imported.
  returned: success
  type: str
archive_sha256:
  description: The SHA-256 of the archive.
  returned: success
  type: str
"""
