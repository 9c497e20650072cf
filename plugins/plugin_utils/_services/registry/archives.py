# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of a registry as archives in the OCI image layout, which containerd imports."""

from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile

from ....module_utils._model.errors import RefusedError
from .client import INDEXES, Registry, digest_of


def find_manifest(registry: Registry, architecture: str) -> tuple[bytes, str]:
    """Return the manifest of an image for one architecture, and its type.

    :raises RefusedError: when the image has none for it, or is not what its name's digest says.
    """
    name = registry.name
    content, kind = registry.manifest(name.reference)
    if kind not in INDEXES:
        return content, kind
    for item in json.loads(content)["manifests"]:
        platform = item.get("platform") or {}
        if platform.get("architecture") == architecture and platform.get("os") == "linux":
            return registry.manifest(str(item["digest"]))
    raise RefusedError(f"{name.url}: {name.reference} has no image for {architecture}", "Name another image or tag")


def write_archive(registry: Registry, image: str, manifest: tuple[bytes, str], place: pathlib.Path) -> None:
    """Write the archive of an image; the same manifest gives the same bytes."""
    content, kind = manifest
    parsed = json.loads(content)
    entry = {
        "mediaType": kind,
        "digest": digest_of(content),
        "size": len(content),
        "annotations": {"io.containerd.image.name": image, "org.opencontainers.image.ref.name": image},
    }
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}, sort_keys=True).encode()
    part = place.with_name(f".{place.name}.part")
    blob_file = place.with_name(f".{place.name}.blob")
    try:
        with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add(archive, "index.json", index)
            _add(archive, _blob_path(digest_of(content)), content)
            for digest in dict.fromkeys(str(item["digest"]) for item in (parsed["config"], *parsed["layers"])):
                with blob_file.open("w+b") as blob:
                    registry.blob(digest, blob)
                    described = tarfile.TarInfo(_blob_path(digest))
                    described.size = blob.tell()
                    blob.seek(0)
                    archive.addfile(described, blob)
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)
        blob_file.unlink(missing_ok=True)


def _blob_path(digest: str) -> str:
    algorithm, _separator, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def _add(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
