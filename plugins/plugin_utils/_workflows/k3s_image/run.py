# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image from an archive into the containerd of K3s on one machine, once as long as it stays there."""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model.cluster_checks import ARCHITECTURES
from ....module_utils._model.errors import InputError
from ....module_utils._model.image_name import full_name
from ....module_utils._node import files
from ..._hosts import bundle
from ..._hosts.node_client import NodeClient
from ..shared.release_files import push_files

# Where the archive is while it is imported, on the disk that holds the images.
_PLACE = "/var/lib/rancher/k3s/agent/muster-image.tar"


def run(options: t.Mapping[str, t.Any], remote: NodeClient, base: pathlib.Path, check: bool) -> dict[str, t.Any]:
    """Return the result of ``k3s_image``.

    :raises InputError: naming an archive that cannot be read.
    """
    archive, name = base / pathlib.Path(str(options["archive"])).expanduser(), full_name(str(options["name"]))
    found = remote.call("k3s", step="find_image", name=name)
    if archive.is_dir():
        architecture = ARCHITECTURES.get(found["architecture"], found["architecture"])
        archive = archive / bundle.find_image(archive, name, architecture).path
    if not archive.is_file():
        raise InputError("archive", f"{archive} does not exist", "Write it with docker save or podman save")
    sha256 = files.sha256_of(archive)
    bundle.check_digest(str(options["archive"]), base, archive, sha256)
    record = found["record"] or {}
    if record.get("archive") == sha256 and found["digest"] == record.get("digest"):
        return {"changed": False, "image": name, "digest": found["digest"], "archive_sha256": sha256}
    if check:
        return {"changed": True, "image": name, "digest": None, "archive_sha256": sha256}
    push_files(remote, "k3s", [(_PLACE, archive)])
    digest = remote.call("k3s", step="load_image", path=_PLACE, name=name, sha256=sha256)["digest"]
    return {"changed": True, "image": name, "digest": digest, "archive_sha256": sha256}
