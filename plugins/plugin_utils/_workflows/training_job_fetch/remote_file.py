# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that is fetched piece by piece: it gets its name once its checksum is right, and a cut copy continues."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._node import files


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a node or in a bucket, and where it goes below the destination.

    ``place`` is the name of the node or of the binding. ``read`` returns bytes from an offset on, none at the end.
    ``changed_fix`` says what to do when the content is not what was listed. ``step`` is that of its checkpoint, None
    where that is not known.
    """

    place: str
    path: str
    size: int
    sha256: str
    target: str
    read: t.Callable[[int], bytes]
    changed_fix: str = "Run again"
    step: int | None = None


def check_path(path: str) -> str:
    """Return a path that a node or a manifest names: it must not lead out of the destination."""
    pure = pathlib.PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise RefusedError(f"a node answered with the path {path!r}, which is outside of the run's folder")
    return str(pure)


def add_file(chosen: dict[str, RemoteFile], file: RemoteFile, owner: str) -> None:
    """Add a file under its path, or below its owner's name where another file has that path; a twin is left out."""
    known = chosen.get(file.path)
    if known is not None and known.sha256 == file.sha256:
        return
    target = file.path if known is None else f"{files.plain_name(owner)}/{file.path}"
    chosen[target] = dataclasses.replace(file, target=target)


def is_there(target: pathlib.Path, file: RemoteFile) -> bool:
    """Return whether the file was fetched already."""
    return target.is_file() and target.stat().st_size == file.size and files.sha256_of(target) == file.sha256


def fetch_file(file: RemoteFile, target: pathlib.Path) -> None:
    """Fetch one file, from where a former fetch of the same content stopped.

    :raises RefusedError: when what arrived has another checksum, or the destination cannot be written.
    """
    try:
        _fetch(file, target)
    except OSError as exc:
        problem = f"{target}: {exc.strerror or type(exc).__name__}"
        raise RefusedError(problem, "Name another folder (muster_fetch_dest); a copy that was cut continues") from exc


def _fetch(file: RemoteFile, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{file.sha256[:12]}.part")
    offset = part.stat().st_size if part.exists() else 0
    with open(part, "ab") as handle:
        while offset < file.size:
            data = file.read(offset)
            if not data:
                break
            handle.write(data)
            offset += len(data)
    if files.sha256_of(part) != file.sha256:
        part.unlink()
        raise RefusedError(f"{file.place}: {file.path} is not what was listed a moment ago", file.changed_fix)
    part.replace(target)
    files.clear_left(target.parent, f".{target.name}.", ".part")
