# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A dataset in a bucket as files: which objects belong to it, and the path that each has on a node."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from .errors import RefusedError
from .wording import name_some

# Linux: the longest name of a file, and the longest path below a folder of ours.
_NAME_BYTES: t.Final = 255
_PATH_BYTES: t.Final = 3000
_SHOWN: t.Final = 3
Row = t.Sequence[t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetObject:
    """One object: its key in the bucket, its path on the node, its size in bytes and the store's ETag (quoted)."""

    key: str
    path: str
    size: int
    etag: str


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetFiles:
    """What a dataset held when it was listed."""

    objects: tuple[DatasetObject, ...]

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(item.size for item in self.objects)

    def identity(self, place: str) -> str:
        """Return what tells this content of ``place`` (endpoint and bucket) from any other: 32 hexadecimal digits."""
        rows = [[item.path, item.size, item.etag] for item in self.objects]
        return hashlib.sha256(json.dumps([place, rows]).encode()).hexdigest()[:32]


def build_files(rows: t.Iterable[Row], prefix: str, option: str) -> DatasetFiles:
    """Return the files of a listing's rows ``(key, size, etag)``; objects that stand for a folder are left out.

    :param prefix: what all keys begin with: a folder (ends with a slash, or is empty), or the key of the one object.
    :raises RefusedError: naming an object that cannot be a file below a folder, or when there is none.
    """
    found = [_build(row, prefix) for row in rows if not _is_folder(row)]
    problems = [text for item in found if (text := _path_problem(item.path))]
    if problems:
        raise RefusedError(
            f"{option}: {name_some(problems, _SHOWN, '; ')}", "Rename these objects, or choose another prefix"
        )
    paths = {item.path for item in found}
    for item in found:
        for end in (index for index, sign in enumerate(item.path) if sign == "/"):
            if item.path[:end] in paths:
                raise RefusedError(
                    f"{option}: {item.path[:end]!r} is an object and a folder of others ({item.path!r})",
                    "Rename one of them, or choose another prefix",
                )
    if not found:
        raise RefusedError(f"{option}: no objects begin with {prefix!r}", "Check prefix and the ref of the binding")
    return DatasetFiles(tuple(sorted(found, key=lambda item: item.path)))


def _is_folder(row: Row) -> bool:
    return str(row[0]).endswith("/") and not int(row[1])


def _build(row: Row, prefix: str) -> DatasetObject:
    key = str(row[0])
    path = key.removeprefix(prefix) or key.rpartition("/")[2]
    return DatasetObject(key, path, int(row[1]), str(row[2]))


def _path_problem(path: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        return f"{path!r} is not a path below a folder"
    if len(path.encode(errors="replace")) > _PATH_BYTES or any(
        len(part.encode(errors="replace")) > _NAME_BYTES for part in parts
    ):
        return f"{path[:60]!r}… is longer than a file system allows"
    return ""
