# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the release_bundle action; the work is done in plugins/action/release_bundle.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_bundle
version_added: 0.1.0
short_description: Fetch everything that a K3s cluster downloads into a folder
description:
  - Fetches the files of the collection's list of downloads (K3s, its archives of images, the manifests of JobSet and
    Kueue), the images of the controllers, and images of jobs.
  - C(bundle.json) in the folder lists them with their SHA-256.
  - Roles take such a folder instead of the network, if the variable C(muster_bundle) names it.
  - A digest that is neither in the list nor in an image's name is written to the lock file at the first download and
    held from then on.
  - What is in the folder with its digest is not fetched again.
options:
  path:
    description: The folder. Relative to the working directory with a playbook of this collection.
    type: path
    required: true
  architectures:
    description: The architectures of the machines.
    type: list
    elements: str
    choices: [amd64, arm64]
    default: [amd64]
  versions:
    description: >-
      Versions by program, such as C({k3s: v1.36.4+k3s1}). The others, and those that are named with an empty one, have
      the versions of the list. Programs that are one choice of several (C(rustfs), C(minio), C(vault),
      C(gpu-operator)), and the image of C(nvidia-device-plugin), are fetched when they are named here.
    type: dict
    default: {}
  images:
    description: Images of jobs. They are read from their registries without credentials.
    type: list
    elements: str
    default: []
  controller_images:
    description: Whether the images of JobSet and Kueue are fetched.
    type: bool
    default: true
  mirror:
    description: >-
      A URL that has the files as a bundle does, C(PROGRAM/VERSION/FILE). Without it they are downloaded from their
      projects.
    type: str
  lock_file:
    description: The lock file. The default is C(muster-downloads.lock.json) beside the inventory.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
attributes:
  check_mode:
    support: partial
    details: Nothing is downloaded. RV(fetched) lists the files of releases that are missing, and not the images.
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: muster.training.release_file
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Fetch all for machines of both architectures
  muster.training.release_bundle:
    path: ./bundle
    architectures: [amd64, arm64]
    images: [docker.io/pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime]
"""

RETURN = r"""
path:
  description: The folder.
  returned: success
  type: str
fetched:
  description: The files that were fetched, by their paths in the folder.
  returned: success
  type: list
  elements: str
entries:
  description: Everything in the folder, with the keys name, version, architecture, path, sha256, use and digest.
  returned: success
  type: list
  elements: dict
"""
