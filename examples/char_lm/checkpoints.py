# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoint files that are either complete or skipped.

A checkpoint is one file ``step-00000040.<sha256 of its bytes>.pt``. It is written under a temporary name, flushed
to the disk and renamed, so a crash leaves the file before it untouched; the checksum in the name finds whatever a
failing disk or a copy cut short left behind. The content is what ``torch.save`` wrote, nothing around it.

Standard library only, Python 3.10 or newer: the bytes come from and go to the caller.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import typing as t
from pathlib import Path

_NAME = re.compile(r"step-(\d{8,})\.([0-9a-f]{64})\.pt")
_TEMPORARY = ".part"


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: its step, its file, and the bytes that were checked."""

    step: int
    path: Path
    payload: bytes


def step_of(name: str) -> int | None:
    """Return the step that a checkpoint's file name states, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def save(directory: Path, step: int, payload: bytes) -> Path:
    """Write ``payload`` as the checkpoint of ``step`` and return its path; older files are not touched.

    :raises OSError: the disk is full, read-only or failing; nothing but the temporary file was changed, and that
        one is removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:08d}.{hashlib.sha256(payload).hexdigest()}.pt"
    temporary = directory / f".{path.name}.{os.getpid()}{_TEMPORARY}"
    try:
        with temporary.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(directory)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files(directory: Path) -> list[Path]:
    """Return the checkpoint files by step, newest first, whether complete or not; none if there is no directory.

    :raises OSError: the directory cannot be read.
    """
    try:
        found = [path for path in directory.iterdir() if step_of(path.name) is not None]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: (step_of(path.name) or 0, path.name), reverse=True)


def newest_complete(directory: Path, skipped: t.Callable[[Path, str], None]) -> Checkpoint | None:
    """Return the newest checkpoint whose bytes have the checksum of its name, None if there is none.

    :param skipped: called with each newer file that does not count, and why.
    :raises OSError: the directory cannot be read.
    """
    for path in files(directory):
        try:
            payload = path.read_bytes()
        except OSError as error:
            skipped(path, error.strerror or str(error))
            continue
        if hashlib.sha256(payload).hexdigest() == path.name.split(".")[1]:
            return Checkpoint(step_of(path.name) or 0, path, payload)
        skipped(path, f"torn or damaged, its {len(payload)} bytes do not have the checksum of its name")
    return None


def prune(directory: Path, newest: Path, keep: int, damaged: t.Collection[Path]) -> None:
    """Remove what the complete checkpoint ``newest`` makes superfluous.

    That is every other file of its step, and of the older ones those in ``damaged`` and those beyond ``keep``.
    A file that cannot be removed is left: space is not a reason to stop.
    """
    step = step_of(newest.name) or 0
    older = [path for path in files(directory) if path != newest and (step_of(path.name) or 0) <= step]
    sound = [path for path in older if path not in damaged and step_of(path.name) != step]
    spared = set(sound[: keep - 1])
    for path in older:
        if path not in spared:
            _remove(path)


def sweep(directory: Path) -> None:
    """Remove temporary files that killed processes left behind."""
    try:
        leftovers = [path for path in directory.iterdir() if path.name.endswith(_TEMPORARY)]
    except OSError:
        return
    for path in leftovers:
        _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
