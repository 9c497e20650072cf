# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of a registry as archives in the OCI image layout, which containerd imports.

Only what may be pulled without credentials: the name decides the registry, and nothing else is sent there.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import tarfile
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from ...module_utils._model.errors import RefusedError, TransportError

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_HUB = {"docker.io": "registry-1.docker.io"}
_LIMIT_S = 120
_CHUNK = 1 << 20
_LARGEST_MANIFEST = 4 << 20
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclasses.dataclass(frozen=True, slots=True)
class ImageName:
    """A full name of an image in its parts: ``docker.io/library/python:3.13``."""

    registry: str
    repository: str
    reference: str

    @classmethod
    def from_text(cls, name: str) -> ImageName:
        """Return the parts of a full name."""
        registry, _separator, rest = name.partition("/")
        repository, separator, digest = rest.partition("@")
        head, colon, tag = repository.rpartition(":")
        named = colon and "/" not in tag
        return cls(registry, head if named else repository, digest if separator else tag if named else "latest")

    @property
    def url(self) -> str:
        """The URL of the repository's API; a registry of this machine speaks HTTP."""
        host = _HUB.get(self.registry, self.registry)
        local = host.partition(":")[0] in ("localhost", "127.0.0.1")
        return f"{'http' if local else 'https'}://{host}/v2/{self.repository}"


class Registry:
    """Reads one repository; a token for anybody is fetched where the registry asks for one."""

    def __init__(self, name: ImageName) -> None:
        self.name = name
        self.token = ""

    def manifest(self, reference: str) -> tuple[bytes, str]:
        """Return a manifest or an index, and its type."""
        with self._open(f"manifests/{reference}", ", ".join((*_INDEXES, *_MANIFESTS))) as source:
            content = source.read(_LARGEST_MANIFEST + 1)
            kind = source.headers.get_content_type()
        if len(content) > _LARGEST_MANIFEST:
            raise TransportError(f"{self.name.url}: the manifest {reference} is too large")
        return content, str(json.loads(content).get("mediaType") or kind)

    def blob(self, digest: str, target: t.IO[bytes]) -> None:
        """Write a blob to a file.

        :raises RefusedError: when it is not what its digest says.
        """
        found = hashlib.sha256()
        with self._open(f"blobs/{digest}", "*/*") as source:
            while data := source.read(_CHUNK):
                target.write(data)
                found.update(data)
        if digest != f"sha256:{found.hexdigest()}":
            raise RefusedError(f"{self.name.url}: the blob {digest} arrived as sha256:{found.hexdigest()}", "Run again")

    def _open(self, path: str, accept: str) -> t.Any:
        url = f"{self.name.url}/{path}"
        try:
            return self._request(url, accept)
        except urllib.error.HTTPError as exc:
            challenge = exc.headers.get("WWW-Authenticate", "")
            if exc.code != 401 or self.token or not challenge.lower().startswith("bearer "):
                raise TransportError(
                    f"{url} cannot be read: {exc}", "Write an archive of the image by hand and name it"
                ) from exc
            self.token = self._fetch_token(dict(_CHALLENGE.findall(challenge)))
            return self._open(path, accept)
        except (OSError, ValueError) as exc:
            raise TransportError(f"{url} cannot be read: {exc}", "Check the network and the name of the image") from exc

    def _request(self, url: str, accept: str) -> t.Any:
        request = urllib.request.Request(url, headers={"Accept": accept})
        if self.token:
            # Blobs are redirected to another host, which must not get it.
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        return urllib.request.build_opener().open(request, timeout=_LIMIT_S)

    def _fetch_token(self, challenge: t.Mapping[str, str]) -> str:
        asked = {key: challenge[key] for key in ("service", "scope") if key in challenge}
        url = f"{challenge.get('realm', '')}?{urllib.parse.urlencode(asked)}"
        with self._request(url, "application/json") as source:
            answer = json.loads(source.read(_LARGEST_MANIFEST))
        return str(answer.get("token") or answer.get("access_token") or "")


def find_manifest(registry: Registry, architecture: str) -> tuple[bytes, str]:
    """Return the manifest of an image for one architecture, and its type.

    :raises RefusedError: when the image has none for it, or is not what its name's digest says.
    """
    name = registry.name
    content, kind = registry.manifest(name.reference)
    if name.reference.startswith("sha256:") and name.reference != digest_of(content):
        raise RefusedError(f"{name.url}: {name.reference} arrived as {digest_of(content)}", "Run again")
    if kind not in _INDEXES:
        return content, kind
    for item in json.loads(content)["manifests"]:
        platform = item.get("platform") or {}
        if platform.get("architecture") == architecture and platform.get("os") == "linux":
            found, found_kind = registry.manifest(str(item["digest"]))
            if digest_of(found) != item["digest"]:
                raise RefusedError(f"{name.url}: {item['digest']} arrived as {digest_of(found)}", "Run again")
            return found, found_kind
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


def digest_of(content: bytes) -> str:
    """Return the digest of a manifest as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _blob_path(digest: str) -> str:
    algorithm, _separator, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def _add(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
