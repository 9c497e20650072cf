# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders on the controller as manifests, and their transfer by content: only what a node lacks is sent."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import pathlib
import typing as t
import zlib

from ...module_utils._model.errors import InputError, RefusedError
from . import gitignore
from .node_client import PIECE_BYTES, NodeClient

_SKIP = {".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", "node_modules"}
_READ_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a tree: relative path, checksum, permission bits, bytes, and its path on the controller."""

    path: str
    sha256: str
    mode: int
    size: int
    source: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True)
class FileTree:
    """A folder by content; ``sha256`` is the digest of its manifest. ``ignored``: what ``.gitignore`` leaves out."""

    files: tuple[SourceFile, ...]
    sha256: str
    ignored: tuple[str, ...] = ()

    def manifest(self) -> list[dict[str, t.Any]]:
        """Return the manifest as JSON types, for the agent."""
        return [{"path": f.path, "sha256": f.sha256, "mode": f.mode, "size": f.size} for f in self.files]

    def require_file(self, path: str, option: str, title: str) -> None:
        """Refuse a tree without a file; what ``.gitignore`` leaves out is named as such.

        :param title: what people call the tree.
        :raises InputError: for the option that names the file.
        """
        if path in {file.path for file in self.files}:
            return
        if any(path == name or (name.endswith("/") and path.startswith(name)) for name in self.ignored):
            raise InputError(option, f"{path} is left out by .gitignore", f"Add the line !{path} to its .gitignore")
        raise InputError(option, f"{path} does not exist in {title}")


def read_tree(root: pathlib.Path, option: str, *, is_code: bool = False) -> FileTree:
    """Return the tree below ``root`` (a folder, or a single file), without version control and caches.

    :param is_code: what ``.gitignore`` names is left out, too.
    :raises InputError: when something cannot be read, naming it.
    """
    if not root.exists():
        raise InputError(option, f"{root} does not exist")
    ignored: list[str] = []
    rules = gitignore.rules_above(root) if is_code else None
    files = [_read_file(path, name, option) for path, name in _walk(root, option, rules, ignored)]
    digest = hashlib.sha256("".join(f"{f.sha256} {f.mode:o} {f.path}\n" for f in files).encode()).hexdigest()
    return FileTree(tuple(files), digest, tuple(ignored))


def send_files(
    remote: NodeClient,
    trees: t.Iterable[FileTree],
    received: t.Mapping[str, int],
    free_bytes: int,
    count_bytes: t.Callable[[int], None] = lambda _bytes: None,
) -> int:
    """Send files that are not whole on the node, in pieces; return the bytes sent.

    :param received: for each such file, by its SHA-256, the bytes that the node has of it.
    :param count_bytes: called after each request with the bytes that arrived by it.
    :raises RefusedError: when the node has no room for them, or what arrived has another SHA-256.
    """
    sources = {file.sha256: file for tree in trees for file in tree.files if file.sha256 in received}
    need = sum(file.size - received[sha] for sha, file in sources.items())
    if need > free_bytes:
        raise RefusedError(
            f"{remote.name}: {need / 1e9:.2f} GB must be copied and {free_bytes / 1e9:.2f} GB are free",
            "Free space on the node or set muster_node_state to a larger disk",
        )
    batch: list[dict[str, t.Any]] = []
    size = sent = 0
    for piece, length in _read_pieces(sources, received):
        batch.append(piece)
        size += length
        sent += length
        if size >= PIECE_BYTES:
            _put_pieces(remote, batch)
            count_bytes(size)
            batch, size = [], 0
    if batch:
        _put_pieces(remote, batch)
        count_bytes(size)
    return sent


def _put_pieces(remote: NodeClient, pieces: list[dict[str, t.Any]]) -> None:
    rejected = remote.call("put", pieces=pieces)["refused"]
    if rejected:
        raise RefusedError(
            f"{remote.name}: {len(rejected)} files arrived damaged or changed while being copied", "Run again"
        )


def _read_pieces(
    sources: t.Mapping[str, SourceFile], received: t.Mapping[str, int]
) -> t.Iterator[tuple[dict[str, t.Any], int]]:
    for sha, file in sources.items():
        offset = received[sha]
        with open(file.source, "rb") as handle:
            handle.seek(offset)
            while True:
                data = handle.read(PIECE_BYTES)
                last = offset + len(data) >= file.size
                packed = base64.b64encode(zlib.compress(data, 1)).decode()
                yield {"sha256": sha, "offset": offset, "data": packed, "last": last}, len(data)
                offset += len(data)
                if last or not data:
                    break


def _walk(
    root: pathlib.Path, option: str, above: tuple[gitignore.IgnoreRule, ...] | None, ignored: list[str]
) -> t.Iterator[tuple[pathlib.Path, str]]:
    """Yield the files below ``root`` with their relative paths; ``above`` are the rules of ``.gitignore`` above it.

    Names that these leave out are added to ``ignored``. With ``above: None`` all files are yielded.
    """
    if root.is_file():
        yield root, root.name
        return

    def fail(exc: OSError) -> None:
        raise InputError(option, f"cannot read {exc.filename}: {exc.strerror}")

    entered: set[str] = set()
    rules: dict[str, tuple[gitignore.IgnoreRule, ...]] = {}

    def is_left_out(place: pathlib.Path, is_folder: bool) -> bool:
        if above is None or not gitignore.is_ignored(place, is_folder, rules[str(place.parent)]):
            return False
        ignored.append(f"{place.relative_to(root)}{'/' if is_folder else ''}")
        return True

    for folder, names, files in os.walk(root, onerror=fail, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:
            # A linked folder is sent like its content; one that links back to a parent is skipped.
            names[:] = []
            continue
        entered.add(real)
        here = pathlib.Path(folder)
        if above is not None:
            rules[str(here)] = rules.get(str(here.parent), above) + gitignore.read_rules(here)
        names[:] = sorted(name for name in names if name not in _SKIP and not is_left_out(here / name, True))
        for name in sorted(files):
            path = here / name
            if path.is_file() and not name.endswith(".pyc") and not is_left_out(path, False):
                yield path, _check_file_name(str(path.relative_to(root)), option)


def _check_file_name(name: str, option: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(option, f"holds a file whose name is not UTF-8: {ascii(name)}", "Rename it") from None
    return name


def _read_file(path: pathlib.Path, name: str, option: str) -> SourceFile:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as handle:
            while chunk := handle.read(_READ_BYTES):
                digest.update(chunk)
        stat = path.stat()
    except OSError as exc:
        raise InputError(option, f"cannot read {path}: {exc.strerror}") from exc
    return SourceFile(name, digest.hexdigest(), 0o700 if stat.st_mode & 0o100 else 0o600, stat.st_size, path)
