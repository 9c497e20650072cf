# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an image that is pushed comes from: an archive or folder in the OCI image layout, ``docker save``, a
registry.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import tarfile
import tempfile
import typing as t

from ....module_utils._model.errors import InputError, RefusedError
from .client import INDEXES, MANIFESTS, Registry, digest_of

Manifest = tuple[bytes, str]
_CHUNK = 1 << 20
_LARGEST = 4 << 20
_FIX: t.Final = "Write it with docker save, podman save or skopeo copy"


class ImageSource(t.Protocol):
    """An image: what its name stands for, the manifests of an index, and blobs as files that can be sought."""

    def root(self) -> Manifest:
        """Return the manifest or the index, and its type."""

    def manifest(self, digest: str) -> Manifest:
        """Return a manifest of the index."""

    def open(self, digest: str) -> t.ContextManager[t.IO[bytes]]:
        """Open a blob whose digest was compared."""


class RegistrySource:
    """An image in another registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def root(self) -> Manifest:
        """Return what the name stands for."""
        return self._registry.manifest(self._registry.name.reference)

    def manifest(self, digest: str) -> Manifest:
        """Return a manifest of the index."""
        return self._registry.manifest(digest)

    @contextlib.contextmanager
    def open(self, digest: str) -> t.Iterator[t.IO[bytes]]:
        """Fetch a blob into a file that goes again."""
        with tempfile.TemporaryFile() as file:
            self._registry.blob(digest, file)
            file.seek(0)
            yield file


class ArchiveSource:
    """An image in a folder or an archive.

    :param name: the full name that an archive of several images is asked for.
    """

    def __init__(self, place: pathlib.Path, name: str) -> None:
        self._place, self._name = place, name
        self._archive: tarfile.TarFile | None = None
        # Of docker save: what is made of its list of files, and where blobs are.
        self._made: Manifest | None = None
        self._files: dict[str, str] = {}

    def __enter__(self) -> t.Self:
        if not self._place.is_dir():
            try:
                self._archive = tarfile.open(self._place)
            except (OSError, tarfile.TarError) as exc:
                raise InputError("archive", f"{self._place} is not an archive: {exc}", _FIX) from exc
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._archive is not None:
            self._archive.close()

    def root(self) -> Manifest:
        """Return the manifest or the index of the image.

        :raises InputError: when the archive does not hold it, or several.
        """
        index = self._read_json("index.json")
        if index is not None:
            entry = self._choose(index.get("manifests") or [])
            return self.manifest(str(entry["digest"]))
        listed = self._read_json("manifest.json")
        if not isinstance(listed, list):
            raise InputError("archive", f"{self._place} holds neither index.json nor manifest.json", _FIX)
        if self._made is None:
            self._made = self._convert(self._choose(listed))
        return self._made

    def manifest(self, digest: str) -> Manifest:
        """Return a manifest by its digest, and its type."""
        with self._open_file(_blob_path(digest)) as file:
            content = file.read(_LARGEST)
        if digest_of(content) != digest:
            raise RefusedError(f"{self._place}: {digest} is damaged", "Write the archive again")
        parsed = json.loads(content)
        kind = INDEXES[0] if "manifests" in parsed else MANIFESTS[0]
        return content, str(parsed.get("mediaType") or kind)

    @contextlib.contextmanager
    def open(self, digest: str) -> t.Iterator[t.IO[bytes]]:
        """Open a blob.

        :raises RefusedError: when it is not what its digest says.
        """
        path = self._files.get(digest) or _blob_path(digest)
        if digest not in self._files:
            with self._open_file(path) as file:
                if _digest_of(file) != digest:
                    raise RefusedError(f"{self._place}: {digest} is damaged", "Write the archive again")
        with self._open_file(path) as file:
            yield file

    def _choose(self, entries: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
        tag = self._name.rpartition(":")[2]
        named = [
            entry
            for entry in entries
            if {self._name, tag} & {*(entry.get("annotations") or {}).values(), *(entry.get("RepoTags") or ())}
        ]
        found = list(entries) if len(entries) == 1 else named
        if len(found) != 1:
            problem = f"{self._place} holds {len(entries)} images, and {len(found)} named {self._name}"
            raise InputError("archive", problem, "Write an archive of this image alone")
        return found[0]

    def _convert(self, entry: t.Mapping[str, t.Any]) -> Manifest:
        """Return a manifest of the files that docker save lists; the same archive gives the same digest."""
        kinds = ["application/vnd.oci.image.config.v1+json"]
        kinds += ["application/vnd.oci.image.layer.v1.tar"] * len(entry["Layers"])
        parts = []
        for path, kind in zip((entry["Config"], *entry["Layers"]), kinds, strict=True):
            with self._open_file(str(path)) as file:
                digest = _digest_of(file)
                size = file.tell()
            self._files[digest] = str(path)
            parts.append({"mediaType": kind, "digest": digest, "size": size})
        manifest = {"schemaVersion": 2, "mediaType": MANIFESTS[0], "config": parts[0], "layers": parts[1:]}
        return json.dumps(manifest, sort_keys=True).encode(), MANIFESTS[0]

    def _read_json(self, path: str) -> t.Any:
        try:
            with self._open_file(path) as file:
                return json.loads(file.read(_LARGEST))
        except InputError:
            return None
        except ValueError as exc:
            raise InputError("archive", f"{path} of {self._place} is damaged", _FIX) from exc

    def _open_file(self, path: str) -> t.IO[bytes]:
        if ".." in path.split("/") or os.path.isabs(path):
            raise InputError("archive", f"{self._place} names the file {path}, which is outside of it")
        if self._archive is None:
            place = self._place / path
            if not place.is_file():
                raise InputError("archive", f"{self._place} lacks {path}", _FIX)
            return place.open("rb")
        for name in (path, f"./{path}"):
            with contextlib.suppress(KeyError):
                # Layers may be links to others of the archive.
                found = self._archive.extractfile(name)
                if found is not None:
                    return found
        raise InputError("archive", f"{self._place} lacks {path}", _FIX)


def _digest_of(file: t.IO[bytes]) -> str:
    found = hashlib.sha256()
    while data := file.read(_CHUNK):
        found.update(data)
    return f"sha256:{found.hexdigest()}"


def _blob_path(digest: str) -> str:
    algorithm, _separator, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"
