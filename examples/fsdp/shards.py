# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a checkpoint made of many files counts: its manifest lists every file, and each is there as listed.

A checkpoint is a directory ``step-00000040``. The ranks write their shards into it, and last of all one of them
writes ``manifest.json`` (temporary name, flush, rename). A directory without a manifest was never finished; one
whose files do not fit the manifest was damaged later. Both are passed over for the one before.

Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import typing as t
from pathlib import Path

MANIFEST = "manifest.json"
_DIRECTORY = re.compile(r"step-(\d{8,})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class TornError(Exception):
    """A checkpoint does not count; the text says why, in one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """One file of a checkpoint."""

    name: str
    size_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of. ``position`` counts the samples read since step 1, ``shape`` is the model's."""

    step: int
    position: int
    world_size: int
    shape: dict[str, int]
    shards: tuple[Shard, ...]

    def to_dict(self) -> dict[str, t.Any]:
        """Return the manifest as plain values."""
        return {"schema": 1, **dataclasses.asdict(self), "shards": [dataclasses.asdict(item) for item in self.shards]}

    @classmethod
    def from_dict(cls, raw: object) -> Manifest:
        """Return the manifest that ``raw`` states.

        :raises TornError: it is not one.
        """
        if not isinstance(raw, dict) or raw.get("schema") != 1:
            raise TornError(f"{MANIFEST} is not a manifest of schema 1")
        shape, shards = raw.get("shape"), raw.get("shards")
        if not isinstance(shape, dict) or not isinstance(shards, list) or not shards:
            raise TornError(f"{MANIFEST} lacks its shape or its shards")
        return cls(
            step=_count(raw, "step"),
            position=_count(raw, "position"),
            world_size=_count(raw, "world_size"),
            shape={str(key): _count(shape, key) for key in shape},
            shards=tuple(map(_shard, shards)),
        )


def _count(raw: dict[t.Any, t.Any], key: str) -> int:
    value = raw.get(key)
    if type(value) is not int or value < 0:
        raise TornError(f"{MANIFEST}: {key!r} is not a whole number")
    return value


def _shard(raw: object) -> Shard:
    if not isinstance(raw, dict):
        raise TornError(f"{MANIFEST}: a shard is not an object")
    name, sha256 = raw.get("name"), raw.get("sha256")
    # A name with a separator would lead out of the checkpoint's directory.
    if not isinstance(name, str) or name in {"", ".", "..", MANIFEST} or re.search(r"[/\\\0]", name):
        raise TornError(f"{MANIFEST}: a shard's name is not a file name")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise TornError(f"{MANIFEST}: the checksum of {name!r} is not one")
    return Shard(name, _count(raw, "size_bytes"), sha256)


def directory_of(root: Path, step: int) -> Path:
    """Return where the checkpoint of ``step`` lies under ``root``."""
    return root / f"step-{step:08d}"


def candidates(root: Path) -> list[Path]:
    """Return the checkpoints under ``root`` by step, newest first, whether complete or not.

    :raises OSError: the directory cannot be read.
    """
    try:
        found = [(int(match[1]), path) for path in root.iterdir() if (match := _DIRECTORY.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(found, reverse=True)]


def part_of(names: t.Iterable[str], rank: int, world_size: int) -> list[str]:
    """Return the files that ``rank`` checks, so that all ranks together check each once."""
    return sorted(names)[rank::world_size]


def describe_file(path: Path) -> Shard:
    """Return the file as it is on the disk.

    :raises OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return Shard(path.name, file.tell(), digest.hexdigest())


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    :raises TornError: there is none, or it is damaged, or of another step than the directory.
    """
    try:
        manifest = Manifest.from_dict(json.loads((directory / MANIFEST).read_bytes()))
    except FileNotFoundError:
        raise TornError("it was never finished, there is no manifest") from None
    except OSError as error:
        raise TornError(f"{MANIFEST} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise TornError(f"{MANIFEST} is not JSON") from None
    if directory_of(directory.parent, manifest.step) != directory:
        raise TornError(f"{MANIFEST} is of step {manifest.step}")
    return manifest


def check(directory: Path, shards: t.Iterable[Shard]) -> str:
    """Return what is wrong with the first of ``shards`` that is not as listed; empty if all are."""
    for shard in shards:
        path = directory / shard.name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != shard.size_bytes:
                return f"{shard.name} has {size_bytes} bytes instead of {shard.size_bytes}"
            if describe_file(path) != shard:
                return f"{shard.name} does not have its checksum"
        except OSError as error:
            return f"{shard.name}: {error.strerror}"
    return ""


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Make the checkpoint count: write its manifest atomically, after the directory itself is on the disk.

    :raises OSError: the disk is full, read-only or failing.
    """
    temporary = directory / f".{MANIFEST}.{os.getpid()}"
    _sync_directory(directory)
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(manifest.to_dict(), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MANIFEST)
    _sync_directory(directory)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(directory: Path) -> None:
    """Remove a checkpoint, its manifest first, so that a half removed one does not count.

    :raises OSError: it cannot be removed.
    """
    (directory / MANIFEST).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def prune(root: Path, newest: int, keep: int, damaged: t.Collection[Path]) -> None:
    """Remove the checkpoints before step ``newest`` that are ``damaged`` or beyond the ``keep`` to keep.

    One that cannot be removed is left: space is not a reason to stop.
    """
    older = [path for path in candidates(root) if path.name < directory_of(root, newest).name]
    spared = [path for path in older if path not in damaged and (path / MANIFEST).exists()][: keep - 1]
    for path in older:
        if path not in spared:
            with contextlib.suppress(OSError):
                discard(path)
