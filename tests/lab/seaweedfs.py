# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS for the lab: a release as its project packs it, and an image, from the program of the test environment."""

from __future__ import annotations

import os
import pathlib
import shutil
import tarfile

from ansible_collections.muster.training.tests.support.kube_lab import not_run

from .kube_registry import Registry

ARCHIVE = "linux_amd64_large_disk.tar.gz"


def services_folder() -> pathlib.Path:
    """Return the folder with the programs of the environment that has botocore and SeaweedFS."""
    named = os.environ.get("MUSTER_SERVICES_PYTHON", "")
    if not named or not shutil.which(named):
        not_run("MUSTER_SERVICES_PYTHON names no interpreter with botocore and SeaweedFS")
    return pathlib.Path(named).parent


def release(folder: pathlib.Path) -> pathlib.Path:
    """Make a folder with the archive of the program."""
    place = folder / "seaweedfs"
    place.mkdir()
    with tarfile.open(place / ARCHIVE, "w:gz", compresslevel=1) as target:
        target.add(services_folder() / "weed", "weed")
    return place


def push_image(registry: Registry) -> str:
    """Put an image with the program into a registry of the lab; return its name."""
    return registry.push("seaweedfs", {"usr/bin/weed": (services_folder() / "weed").read_bytes()}, "amd64", False)
