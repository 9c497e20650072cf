# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that reach a node by content: a store of blobs named by their SHA-256, and trees made from them.

Only missing blobs are sent; an interrupted transfer continues where it stopped, because the part file's length is the
number of bytes received; a blob gets its name only after its checksum was verified. Several runs that start at once may
send the same blob: each piece is written once, by the first that brings it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import pathlib
import shutil
import typing as t
import zlib

from . import files

_PART_S = 86400.0


def missing_offsets(root: pathlib.Path, shas: t.Iterable[str]) -> dict[str, int]:
    """Return for each blob that is not complete here the number of bytes received."""
    missing = {}
    wanted = list(shas)
    # What was sent in part and is asked for no more: its code has changed meanwhile.
    files.clear_left(root / "blobs", "", ".part", _PART_S, {f"{sha}.part" for sha in wanted})
    for sha in wanted:
        if not _blob_path(root, sha).exists():
            part = _part_path(root, sha)
            missing[sha] = part.stat().st_size if part.exists() else 0
    return missing


def store_pieces(root: pathlib.Path, pieces: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, int]:
    """Store pieces ``{sha256, offset, data (base64 of zlib), last}``.

    :returns: sha256 -> offset for pieces that did not continue the part file, or whose blob failed its checksum.
    """
    files.private_dir(root / "blobs")
    rejected = {}
    for piece in pieces:
        sha = str(piece["sha256"])
        data, offset = zlib.decompress(base64.b64decode(piece["data"])), int(piece["offset"])
        with _hold_part(root, sha) as handle:
            if handle is None:
                continue
            size = os.fstat(handle.fileno()).st_size
            if size < offset:
                rejected[sha] = size
                continue
            handle.write(data[size - offset :])
            handle.flush()
            os.fsync(handle.fileno())
            if piece["last"] and not _complete_blob(root, sha):
                rejected[sha] = 0
    return rejected


@contextlib.contextmanager
def _hold_part(root: pathlib.Path, sha: str) -> t.Iterator[t.BinaryIO | None]:
    """Open the part file of a blob at its end and keep it from the senders of other runs; None: the blob is whole."""
    part, blob = _part_path(root, sha), _blob_path(root, sha)
    while not blob.exists():
        with open(part, "ab") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # It may have become the blob, or been removed, before this one had it.
            if not blob.exists() and part.exists() and os.path.samestat(os.fstat(handle.fileno()), part.stat()):
                yield handle
                return
            if blob.exists():
                part.unlink(missing_ok=True)
    yield None


def place_tree(
    root: pathlib.Path, manifest: t.Sequence[t.Mapping[str, t.Any]], target: pathlib.Path, link: bool
) -> bool:
    """Place the files of ``manifest`` (``{path, sha256, mode, size}``) in ``target``.

    Files of an earlier manifest that are not in this one are removed; files that a program wrote there stay.

    :param link: hard-link blobs (read-only data) instead of copying them.
    :returns: whether anything changed.
    """
    record = target.with_name(f"{target.name}.manifest.json")
    before = {item["path"]: item for item in files.read_json(record) or []}
    after: dict[str, dict[str, t.Any]] = {}
    changed = False
    files.private_dir(target)
    for old in set(before) - {item["path"] for item in manifest}:
        _remove_file(target, old)
        changed = True
    for item in manifest:
        place = target / item["path"]
        known = before.get(item["path"], {})
        same = all(known.get(key) == item[key] for key in ("sha256", "mode")) and known.get("seen") == _file_signature(
            place
        )
        if not same:
            files.private_dir(place.parent)
            _place_blob(_blob_path(root, item["sha256"]), place, int(item["mode"]), link)
            changed = True
        after[item["path"]] = {**item, "seen": _file_signature(place)}
    if changed or not record.exists():
        files.write_json(record, list(after.values()))
    return changed


def free_bytes(path: pathlib.Path) -> int:
    """Return the bytes an unprivileged user may still write on the file system that will hold ``path``."""
    place = path
    while not place.exists():
        place = place.parent
    stat = os.statvfs(place)
    return stat.f_bavail * stat.f_frsize


def _file_signature(place: pathlib.Path) -> list[int] | None:
    """Return size and time of change (nanoseconds) of a placed file, which differ once a program wrote it."""
    try:
        stat = place.lstat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def _remove_file(target: pathlib.Path, old: str) -> None:
    """Remove a file and the folders that it leaves empty: a file may come where a folder was."""
    (target / old).unlink(missing_ok=True)
    for folder in (target / old).parents:
        if folder == target:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def _place_blob(blob: pathlib.Path, place: pathlib.Path, mode: int, link: bool) -> None:
    # One name, so that the next run takes up what one that was killed has left.
    temporary = place.with_name(f".{place.name}.placed.tmp")
    temporary.unlink(missing_ok=True)
    try:
        if not link:
            raise OSError("a copy is wanted")
        os.link(blob, temporary)
    except OSError:
        shutil.copyfile(blob, temporary)
    if not link:
        os.chmod(temporary, mode)
    os.replace(temporary, place)


def _complete_blob(root: pathlib.Path, sha: str) -> bool:
    part = _part_path(root, sha)
    if files.sha256_of(part) != sha:
        part.unlink()
        return False
    os.chmod(part, 0o400)
    os.replace(part, _blob_path(root, sha))
    return True


def _blob_path(root: pathlib.Path, sha: str) -> pathlib.Path:
    return root / "blobs" / sha


def _part_path(root: pathlib.Path, sha: str) -> pathlib.Path:
    return root / "blobs" / f"{sha}.part"
