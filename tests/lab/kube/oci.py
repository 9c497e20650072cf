# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images made by this program: one layer, an archive in the OCI image layout that ``ctr images import`` reads."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import tarfile
import typing as t

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What an image says about how its containers run."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def layer_of(files: t.Mapping[str, pathlib.Path | bytes], layer: pathlib.Path) -> None:
    """Write a layer that holds executable files, the same bytes for the same files. /tmp is there for everybody."""
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
        tmp = tarfile.TarInfo("tmp")
        tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(tmp)
        for place, source in sorted(files.items()):
            entry = tarfile.TarInfo(place.lstrip("/"))
            entry.mode = 0o755
            if isinstance(source, bytes):
                entry.size = len(source)
                archive.addfile(entry, io.BytesIO(source))
            else:
                entry.size = source.stat().st_size
                with source.open("rb") as handle:
                    archive.addfile(entry, handle)


def write(
    archive: pathlib.Path, name: str, layer: pathlib.Path, settings: Settings, architecture: str = "amd64"
) -> None:
    """Write the archive of an image that consists of one uncompressed layer; it appears when it is whole."""
    digest = _digest_of(layer)
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": list(settings.entrypoint),
                "Cmd": list(settings.command),
                "User": settings.user,
                "Env": [f"PATH={settings.path}"],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        },
        sort_keys=True,
    ).encode()
    layers = [{"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": layer.stat().st_size}]
    described = {"mediaType": _CONFIG, "digest": f"sha256:{_digest(config)}", "size": len(config)}
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described, "layers": layers}, sort_keys=True
    ).encode()
    entry = {
        "mediaType": _MANIFEST,
        "digest": f"sha256:{_digest(manifest)}",
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
        "platform": {"architecture": architecture, "os": "linux"},
    }
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}, sort_keys=True).encode()
    new = archive.with_suffix(f".{os.getpid()}")
    with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as out:
        _add(out, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(out, "index.json", index)
        for blob in (config, manifest):
            _add(out, f"blobs/sha256/{_digest(blob)}", blob)
        blob_entry = tarfile.TarInfo(f"blobs/sha256/{digest}")
        blob_entry.size = layer.stat().st_size
        with layer.open("rb") as handle:
            out.addfile(blob_entry, handle)
    new.rename(archive)


def _add(archive: tarfile.TarFile, place: str, content: bytes) -> None:
    entry = tarfile.TarInfo(place)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(path: pathlib.Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()
