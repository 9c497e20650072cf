# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a program that this collection installs on a node: brought beside their places, placed, and recorded.

A record of what will be made is on disk before anything is made, so that a removal after a crash leaves nothing. The
record says for each file its digest, size and time of change, which folders were made for it, and which of the
program's folders were there before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import os
import pathlib
import tarfile
import time
import typing as t
import urllib.request
import zipfile
import zlib

from . import files

NodeRequest = t.Mapping[str, t.Any]
_CHUNK = 1 << 20
# The largest piece of a part: what its sender packs at once may become a little longer.
_PIECE_LIMIT = 2 << 20
_HEAD_LIMIT = 1 << 16
_DOWNLOAD_S = 900


def place_of(path: str, root: str = "/") -> pathlib.Path:
    """Return a path of the node; ``root`` is another folder in tests."""
    return pathlib.Path(root) / path.lstrip("/")


@dataclasses.dataclass(frozen=True)
class Recorder:
    """The record of one program. ``path``: its place; ``trees``: folders that the program fills by itself."""

    path: str
    trees: tuple[str, ...]
    root: str = "/"

    def read(self) -> dict[str, t.Any] | None:
        """Return the record, None where nothing was installed."""
        return t.cast("dict[str, t.Any] | None", files.read_json(place_of(self.path, self.root)))

    def write(self, record: t.Mapping[str, t.Any]) -> None:
        """Write the record."""
        place = place_of(self.path, self.root)
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(place, record)

    def begin(self, paths: t.Sequence[str], about: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Write down what will be made, and which of these paths were there before, and return the record."""
        record = self.read()
        if record is None:
            before = [path for path in self.trees if place_of(path, self.root).exists()]
            record = {"schema": 1, "files": {}, "before": before}
        record |= about
        folders = set(record.get("folders", []))
        for path in [*paths, self.path]:
            folders.update(str(parent) for parent in place_of(path, self.root).parents if not parent.exists())
        for path in paths:
            record["files"].setdefault(path, None)
        record["folders"] = sorted(folders)
        self.write(record)
        return record

    def apply(
        self, placed: t.Sequence[t.Mapping[str, t.Any]], obsolete: t.Sequence[str], about: t.Mapping[str, t.Any]
    ) -> dict[str, t.Any]:
        """Place files (``{path, mode, text | sha256 [, archive, member]}``), the record first; remove obsolete ones.

        A file without ``text`` lies beside its place, or is the ``member`` of an archive that lies beside its own.
        """
        record = self.begin([item["path"] for item in placed], about)
        for item in placed:
            place = place_of(item["path"], self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if item.get("text") is not None:
                files.write_atomic(place, item["text"].encode(), item["mode"])
            else:
                part = part_of(item.get("archive") or item["path"], self.root)
                found = files.sha256_of(part)
                if found != item["sha256"]:
                    part.unlink()
                    return {"problem": f"{item['path']} has the SHA-256 {found} and not {item['sha256']}"}
                if item.get("member"):
                    part = _unpack(part, item["member"], place)
                part.chmod(item["mode"])
                os.replace(part, place)
            record["files"][item["path"]] = _signature(place)
            self.write(record)
        for path in obsolete:
            # Also what was brought for it and never placed.
            for left in (place_of(path, self.root), part_of(path, self.root)):
                left.unlink(missing_ok=True)
            record["files"].pop(path, None)
            self.write(record)
        for archive in {item["archive"] for item in placed if item.get("archive")}:
            part_of(archive, self.root).unlink(missing_ok=True)
            if record["files"].pop(archive, "") is None:
                self.write(record)
        return {"placed": [item["path"] for item in placed]}

    def digest_of(self, path: str) -> dict[str, t.Any] | None:
        """Return ``{sha256, mode}`` of a file, None where it is missing; one that has not changed is not read."""
        place = place_of(path, self.root)
        if not place.is_file():
            return None
        before = (self.read() or {}).get("files", {}).get(path) or {}
        stat = place.stat()
        if [before.get("size"), before.get("changed")] == [stat.st_size, stat.st_mtime_ns]:
            return {"sha256": before["sha256"], "mode": stat.st_mode & 0o7777}
        return {"sha256": files.sha256_of(place), "mode": stat.st_mode & 0o7777}


def bring(recorder: Recorder, request: NodeRequest) -> dict[str, t.Any]:
    """Bring files beside their places; with ``begin`` the record is written before the first byte comes.

    ``fetches``: ``{path, url}`` to download. Parts of files follow the request, one after the other: a line
    ``{path, offset}`` and pieces as :func:`store_part` reads them; an empty line is the end. The answer has the
    ``digests`` of what was downloaded.
    """
    if request.get("begin"):
        about = {name: value for name, value in request["begin"].items() if name != "paths"}
        recorder.begin(request["begin"]["paths"], about)
    digests = {}
    for item in request.get("fetches", []):
        found = fetch(part_of(item["path"], recorder.root), item["url"])
        if "problem" in found:
            return found
        digests[item["path"]] = found["sha256"]
    body = request.get("body") or io.BytesIO(b"\n")
    while (line := body.readline(_HEAD_LIMIT)) != b"\n":
        if not line.endswith(b"\n"):
            raise OSError("what follows the request was cut off")
        part = json.loads(line)
        store_part(part_of(part["path"], recorder.root), part["offset"], body)
    return {"digests": digests}


def fetch(part: pathlib.Path, url: str) -> dict[str, t.Any]:
    """Download a file beside its place; the controller decides by its digest whether it may be placed."""
    part.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    end = time.monotonic() + _DOWNLOAD_S
    try:
        with urllib.request.build_opener().open(url, timeout=60) as source, part.open("wb") as target:
            while data := source.read(_CHUNK):
                target.write(data)
                digest.update(data)
                size += len(data)
                if time.monotonic() > end:
                    raise OSError(f"was not complete after {_DOWNLOAD_S} s")
    except (OSError, ValueError) as exc:
        part.unlink(missing_ok=True)
        return {"problem": f"{url} cannot be downloaded: {exc}"}
    return {"sha256": digest.hexdigest(), "size": size}


def store_part(part: pathlib.Path, offset: int, body: t.BinaryIO) -> None:
    """Write a part of a file from ``offset`` on; ``body`` has it in pieces.

    :raises OSError: when the body ends before, or is not a part; nothing of the file is kept then, also on a full disk.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("r+b" if offset and part.exists() else "wb") as target:
            target.truncate(offset)
            target.seek(offset)
            for data in _unpack_part(body):
                target.write(data)
    except (OSError, ValueError, zlib.error) as exc:
        part.unlink(missing_ok=True)
        raise OSError(f"{part.name} cannot be stored: {getattr(exc, 'strerror', None) or exc}") from exc


def _unpack_part(body: t.BinaryIO) -> t.Iterator[bytes]:
    """Yield what pieces hold (a line with the size of each, the last one 0): a few bytes may stand for gigabytes."""
    unpack = zlib.decompressobj()
    while size := int(body.readline(_HEAD_LIMIT) or b"-1"):
        data = body.read(size) if 0 < size <= _PIECE_LIMIT else b""
        if len(data) != size:
            raise OSError("it was cut off")
        while data:
            yield unpack.decompress(data, _CHUNK)
            data = unpack.unconsumed_tail
    yield unpack.flush()
    if not unpack.eof:
        raise OSError("it was cut off")


def discard(request: NodeRequest) -> dict[str, t.Any]:
    """Remove files that were brought and may not be placed."""
    for path in request["paths"]:
        part_of(path, request.get("root", "/")).unlink(missing_ok=True)
    return {}


def remove_empty(folders: t.Iterable[str]) -> None:
    """Remove the folders that were made for files, where nothing else has come into them."""
    for folder in sorted(folders, key=len, reverse=True):
        try:
            pathlib.Path(folder).rmdir()
        except OSError:
            continue


def part_of(path: str, root: str = "/") -> pathlib.Path:
    """Return where a file is before it is placed: beside its path."""
    place = place_of(path, root)
    return place.with_name(f".{place.name}.part")


def _unpack(archive: pathlib.Path, member: str, place: pathlib.Path) -> pathlib.Path:
    """Copy the member of a tar or zip archive with this file name beside its place.

    :raises OSError: when the archive has none.
    """
    part = place.with_name(f".{place.name}.part")
    read = _read_zip if zipfile.is_zipfile(archive) else _read_tar
    with contextlib.closing(read(archive, member)) as chunks:
        first = next(chunks, None)
        if first is None:
            raise OSError(f"{archive.name.removeprefix('.').removesuffix('.part')} has no file {member}")
        with part.open("wb") as target:
            target.writelines(itertools.chain((first,), chunks))
    return part


def _read_tar(archive: pathlib.Path, member: str) -> t.Generator[bytes, None, None]:
    with tarfile.open(archive) as packed:
        for item in packed:
            content = packed.extractfile(item) if item.isfile() and _is_named(item.name, member) else None
            if content is not None:
                with content:
                    yield from _pieces(content)
                return


def _read_zip(archive: pathlib.Path, member: str) -> t.Generator[bytes, None, None]:
    with zipfile.ZipFile(archive) as packed:
        for item in packed.infolist():
            if not item.is_dir() and _is_named(item.filename, member):
                with packed.open(item) as content:
                    yield from _pieces(content)
                return


def _pieces(content: t.IO[bytes]) -> t.Iterator[bytes]:
    return iter(lambda: content.read(_CHUNK), b"")


def _is_named(path: str, name: str) -> bool:
    return pathlib.PurePosixPath(path).name == name


def _signature(place: pathlib.Path) -> dict[str, t.Any]:
    stat = place.stat()
    return {"sha256": files.sha256_of(place), "size": stat.st_size, "changed": stat.st_mtime_ns}
