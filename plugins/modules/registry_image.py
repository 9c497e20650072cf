# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the registry_image action; the work is done in plugins/action/registry_image.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_image
version_added: 0.1.0
short_description: Push an image into a registry that is bound
description:
  - Sends an image from an archive of the controller, or copies it from another registry by its digest. All
    architectures of an index are sent. Neither Docker nor another tool is needed.
  - Blobs that the registry has are not sent. Others are sent in chunks of 8 MiB, and continue after a cut connection
    where they were. The tag is set last, so that until then it stands for what it did.
  - An image whose digest the tag stands for already is not sent again.
  - The registry is the one that a binding of the kind V(registry) names, with its credentials and its CA
    (M(muster.training.service_binding)).
options:
  name:
    description: The name of the image in the registry, C(HOST/REPOSITORY:TAG), as jobs write it.
    type: str
    required: true
  archive:
    description:
      - An archive or a folder in the OCI image layout, or an archive as C(docker save) writes it. It must hold one
        image, or one that has O(name). Relative to the playbook's folder; with a playbook of this collection, to the
        working directory.
    type: path
  source:
    description:
      - An image of another registry. Credentials are those of a binding of that registry; without one, it is asked
        without any.
    type: str
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
    support: full
seealso:
  - module: muster.training.service_binding
  - module: muster.training.k3s_image
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Push an archive
  muster.training.registry_image:
    name: registry.mesh:5000/team/train:1
    archive: train-1.tar

- name: Copy an image
  muster.training.registry_image:
    name: registry.mesh:5000/library/python:3.13
    source: docker.io/library/python:3.13
"""

RETURN = r"""
image:
  description: The name with the digest.
  returned: success
  type: str
digest:
  description: The digest of the manifest, or of the index.
  returned: success
  type: str
uploaded:
  description: The digests of the blobs that were sent.
  returned: success
  type: list
  elements: str
bytes:
  description: Their sizes together.
  returned: success
  type: int
"""
