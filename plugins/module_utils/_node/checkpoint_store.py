# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint as it lies in a bucket: parts that are numbered, and last a manifest with the digest of every file.

The files of a checkpoint are one stream, cut into parts; no name of a file becomes a key. A place for a checkpoint (a
slot) is used again: its manifest is deleted first and written last, so what has a manifest was written whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import time
import typing as t

from . import checkpoint_layouts, checkpoints, files, host_blobs
from .checkpoint_table import Saved
from .s3_client import S3Error, Store

SCHEMA: t.Final = 1
PART_BYTES: t.Final = 64 << 20
# A manifest names every file: 100,000 of them are about 20 MB.
_MANIFEST_LIMIT = 64 << 20
_CHUNK = 1 << 20
_ROOM = 64 << 20
_FAILURES = 4
Manifest = dict[str, t.Any]
Listed = t.Mapping[str, t.Any]


class ChangedError(Exception):
    """A checkpoint changed, or was removed, while it was read."""


def describe_files(
    path: pathlib.Path, folder: pathlib.Path | None = None, beside: t.Sequence[str] = ()
) -> list[Listed]:
    """Return ``{path, size, mode, changed, sha256}`` of a checkpoint's files; a single file has the path ``""``.

    :param beside: paths in ``folder`` that come along, marked so; the last are written last. Those of the checkpoint
        itself, which is several files, are marked ``part``.
    :raises ChangedError: when it is not made of files that stay as they are.
    """
    try:
        found = [path] if not path.is_dir() else sorted(_walk(path))
        parts = checkpoint_layouts.list_parts(path)
        more = (
            [{**_describe(folder, folder / name), "beside": True, "part": folder / name in parts} for name in beside]
            if folder
            else []
        )
        return [*(_describe(path, place) for place in found), *more]
    except FileNotFoundError as exc:
        raise ChangedError(f"{path.name} was removed while it was read") from exc


def _walk(folder: pathlib.Path) -> t.Iterator[pathlib.Path]:
    for top, _folders, names in os.walk(folder):
        for name in names:
            yield pathlib.Path(top, name)


def _locate(folder: pathlib.Path, name: str, item: Listed) -> pathlib.Path:
    """Return where a listed file of a checkpoint is."""
    return folder / item["path"] if item.get("beside") else folder.joinpath(name, item["path"])


def _describe(path: pathlib.Path, place: pathlib.Path) -> dict[str, t.Any]:
    state = place.lstat()
    if not stat.S_ISREG(state.st_mode):
        raise ChangedError(f"{place} is not a file, and only files are stored")
    name = "" if place == path else str(place.relative_to(path))
    described = {"path": name, "size": state.st_size, "mode": state.st_mode & 0o777, "changed": state.st_mtime_ns}
    return {**described, "sha256": files.sha256_of(place)}


def part_size(total: int, count: int) -> int:
    """Return the size of the parts of ``total`` bytes, of which there may be ``count``."""
    return max(PART_BYTES, -(-total // count))


def read_range(folder: pathlib.Path, name: str, listed: t.Sequence[Listed], first: int, size: int) -> t.Iterator[bytes]:
    """Yield ``size`` bytes of the stream from ``first`` on.

    :raises ChangedError: when a file is no longer what was listed.
    """
    position = 0
    for item in listed:
        begin, end = max(first, position), min(first + size, position + item["size"])
        if begin < end:
            yield from _read_file(_locate(folder, name, item), item, begin - position, end - begin)
        position += item["size"]


def _read_file(place: pathlib.Path, item: t.Mapping[str, t.Any], offset: int, size: int) -> t.Iterator[bytes]:
    try:
        with place.open("rb") as handle:
            state = os.fstat(handle.fileno())
            if (state.st_size, state.st_mtime_ns) != (item["size"], item["changed"]):
                raise ChangedError(f"{place} changed while it was stored")
            handle.seek(offset)
            while size:
                data = handle.read(min(_CHUNK, size))
                if not data:
                    raise ChangedError(f"{place} became shorter while it was stored")
                size -= len(data)
                yield data
    except FileNotFoundError as exc:
        raise ChangedError(f"{place.name} was removed while it was stored") from exc


def upload(
    store: Store,
    slot: t.Mapping[str, t.Any],
    folder: pathlib.Path,
    saved: Saved,
    about: t.Mapping[str, t.Any],
) -> Manifest:
    """Store a checkpoint in a slot ``{manifest: {put, delete}, parts: [address]}`` and return its manifest.

    What its program needs beside it comes along, such as the tracker that names it.

    :raises ChangedError: when it changed meanwhile; the slot then holds none.
    :raises S3Error: when the store does not take it.
    """
    listed = describe_files(folder / saved.name, folder, checkpoint_layouts.list_beside(folder, saved)[::-1])
    total = sum(item["size"] for item in listed)
    size = part_size(total, len(slot["parts"]))
    store.send_again("DELETE", slot["manifest"]["delete"], allow=(404,))
    for number in range(-(-total // size)):
        first = number * size
        length = min(size, total - first)

        def source(first: int = first, length: int = length) -> t.Iterator[bytes]:
            return read_range(folder, saved.name, listed, first, length)

        store.send_again("PUT", slot["parts"][number], source=source, size=length)
    manifest = {"schema": SCHEMA, **about, "name": saved.name, "part_bytes": size, "bytes": total, "files": listed}
    store.send_again("PUT", slot["manifest"]["put"], json.dumps(manifest).encode())
    return manifest


def read_manifest(store: Store, url: str) -> Manifest | None:
    """Return the manifest of a slot, None where there is none or it is not whole."""
    return parse_manifest(read_object(store, url))


def read_object(store: Store, url: str, first: int = 0, size: int | None = None) -> bytes | None:
    """Return ``size`` bytes of an object from ``first`` on, or all of a small one; None where there is no object.

    :raises S3Error: when the store cannot be read.
    """
    headers = {} if size is None else {"Range": f"bytes={first}-{first + size - 1}"}
    try:
        return store.read_again(url, _MANIFEST_LIMIT, headers)
    except S3Error as exc:
        if exc.status == 404 and exc.code != "NoSuchBucket":
            return None
        raise


def parse_manifest(body: bytes | None) -> Manifest | None:
    """Return a manifest, None where it is not whole."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        found: Manifest = json.loads(body or b"")
        names = [item["path"] for item in found["files"]]
        sizes = [found["saved_at"], *(item["size"] for item in found["files"])]
        safe = (
            all(map(_is_plain, found["name"].split("/")))
            and all(_is_inside(name) for name in names)
            and len(set(names)) == len(names)
        )
        safe = safe and all(isinstance(size, int) and size >= 0 for size in sizes) and found["part_bytes"] >= 1
        if found["schema"] == SCHEMA and safe and found["bytes"] == sum(item["size"] for item in found["files"]):
            return found
    return None


def _is_plain(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not {"/", "\0"} & set(name) and not name.startswith(".")


def _is_inside(name: str) -> bool:
    return not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


def is_whole(folder: pathlib.Path, manifest: t.Mapping[str, t.Any]) -> bool:
    """Return whether a local checkpoint has the content that a manifest says; what lies beside it may be newer."""
    own = [item for item in manifest["files"] if item.get("part") or not item.get("beside")]
    wanted = {item["path"]: (item["size"], item["sha256"]) for item in own}
    parts = [item["path"] for item in own if item.get("part")]
    try:
        listed = describe_files(folder / manifest["name"], folder, parts)
        found = {item["path"]: (item["size"], item["sha256"]) for item in listed}
    except (OSError, ChangedError):
        return False
    return found == wanted


def download(store: Store, parts: t.Sequence[str], manifest: t.Mapping[str, t.Any], folder: pathlib.Path) -> str | None:
    """Fetch a checkpoint into ``folder``; return why it is not usable, None when it is in its place.

    It is under another name until all its digests are verified.

    :raises S3Error: when the store cannot be read.
    """
    free = host_blobs.free_bytes(folder)
    if free < manifest["bytes"] + _ROOM:
        raise S3Error(
            f"the checkpoint {manifest['name']} needs {manifest['bytes']:,} bytes, and {folder} has {free:,} free",
            "Free some space, or set checkpoints.path to a larger disk",
        )
    incoming = folder / f".{manifest['name'].replace('/', '_')}.incoming"
    remove(incoming)
    remove(_beside(incoming))
    # Of an earlier download, of another checkpoint, whose process was killed.
    for ending in (".incoming", ".incoming.beside"):
        files.clear_left(folder, ".", ending)
    folder.joinpath(manifest["name"]).parent.mkdir(parents=True, exist_ok=True)
    try:
        with _Splitter(incoming, manifest["files"]) as splitter:
            for number, url in enumerate(parts):
                _fetch_part(store, url, splitter, min(manifest["part_bytes"], _left(manifest, number)))
        wrong = splitter.wrong or ([] if splitter.is_complete else ["its parts"])
        if wrong:
            return f"{manifest['name']}: {wrong[0] or 'its file'} is not as it was stored"
        _place(incoming, folder / manifest["name"], manifest)
    finally:
        remove(incoming)
        remove(_beside(incoming))
    return None


def _beside(incoming: pathlib.Path) -> pathlib.Path:
    return incoming.with_name(f"{incoming.name}.beside")


def _left(manifest: t.Mapping[str, t.Any], number: int) -> int:
    return int(manifest["bytes"]) - number * int(manifest["part_bytes"])


def _fetch_part(store: Store, url: str, splitter: _Splitter, size: int) -> None:
    """Fetch one part; after a cut, only what is missing is asked for."""
    before = splitter.position
    failures = 0
    while (done := splitter.position - before) < size:
        headers = {"Range": f"bytes={done}-{size - 1}"} if done else {}
        try:
            store.send("GET", url, headers=headers, sink=splitter.feed)
            if splitter.position - before < size:
                # The object itself is shorter; the digests tell.
                return
        except S3Error as exc:
            # A part that comes in pieces is still coming; one that does not come at all is not waited for.
            failures = 0 if splitter.position - before > done else failures + 1
            if not exc.transient or failures >= _FAILURES:
                raise
            time.sleep(0.2 * 3**failures)


class _Splitter:
    """Writes a stream into the files of a manifest, one after the other, and takes their digests."""

    def __init__(self, place: pathlib.Path, listed: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        self.place, self.position = place, 0
        self.wrong: list[str] = []
        self._files = iter(listed)
        self._handle: t.IO[bytes] | None = None
        self._item: t.Mapping[str, t.Any] = {}
        self._missing = 0
        self._digest = hashlib.sha256()
        self.is_complete = False

    def __enter__(self) -> _Splitter:
        self._next()
        return self

    def __exit__(self, *_unused: object) -> None:
        if self._handle is not None:
            self._handle.close()

    def feed(self, data: bytes) -> None:
        self.position += len(data)
        while data and self._handle is not None:
            piece, data = data[: self._missing], data[self._missing :]
            self._handle.write(piece)
            self._digest.update(piece)
            self._missing -= len(piece)
            if not self._missing:
                self._finish()

    def _next(self) -> None:
        for item in self._files:
            top = _beside(self.place) if item.get("beside") else self.place
            place = top / item["path"] if item["path"] else top
            place.parent.mkdir(parents=True, exist_ok=True)
            self._item, self._missing, self._digest = item, item["size"], hashlib.sha256()
            self._handle = place.open("wb")
            if self._missing:
                return
            self._close_file()
        self._handle, self.is_complete = None, True

    def _finish(self) -> None:
        self._close_file()
        self._next()

    def _close_file(self) -> None:
        handle = t.cast("t.IO[bytes]", self._handle)
        handle.flush()
        os.fsync(handle.fileno())
        handle.close()
        place = pathlib.Path(handle.name)
        os.chmod(place, self._item["mode"] | 0o600)
        os.utime(place, ns=(self._item["changed"], self._item["changed"]))
        if self._digest.hexdigest() != self._item["sha256"]:
            self.wrong.append(self._item["path"])


def _place(incoming: pathlib.Path, place: pathlib.Path, manifest: t.Mapping[str, t.Any]) -> None:
    """Put a verified checkpoint in its place, with the time at which it was saved: that says which is the newest."""
    if incoming.is_dir():
        remove(place)
    os.replace(incoming, place)
    # Files have theirs; a folder without a known layout is as new as itself.
    with contextlib.suppress(OSError):
        os.utime(place, ns=(manifest["saved_at"], manifest["saved_at"]))
    for item in manifest["files"]:
        if item.get("beside"):
            target = place.parents[len(pathlib.PurePosixPath(manifest["name"]).parts) - 1] / item["path"]
            os.replace(_beside(incoming) / item["path"], target)


def set_aside(folder: pathlib.Path, names: t.Sequence[str]) -> None:
    """Rename checkpoints so that a program does not find them: they are newer than what all nodes have."""
    for name in names:
        for place in (folder / name, *checkpoint_layouts.list_parts(folder / name)):
            hidden = place.with_name(f".{place.name}.newer")
            remove(hidden)
            place.rename(hidden)
    for name in names:
        checkpoint_layouts.replace_taken(folder / name)
    if names:
        checkpoint_layouts.mend_trackers(folder)


def remove(path: pathlib.Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def list_local(folder: pathlib.Path, form: str, names: t.Collection[str]) -> list[Saved]:
    """Return the complete checkpoints of a folder, the newest first.

    :param names: what was reported as checkpoints, or is stored; other files may lie beside them. PyTorch's distributed
        checkpoints count without a report.
    """
    complete = checkpoints.list_complete(folder, form)
    return [saved for saved in complete if saved.layout == "dcp" or saved.name in names]
