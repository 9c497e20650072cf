# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file was written to its end, as far as its format tells; of others nothing is known."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import typing as t

_SMALL = 64 << 10
_ZIP = b"PK\x03\x04"
_ZIP_TAIL = 66_000
# Of safetensors (MAX_HEADER_SIZE in its source).
_MOST_HEADER = 100_000_000


def is_torn(place: pathlib.Path) -> bool:
    """Return whether a file lacks its end."""
    state = place.stat()
    return _lacks_end(str(place), state.st_size, state.st_mtime_ns)


def is_archive(place: pathlib.Path) -> bool:
    """Return whether a file is an archive, as ``torch.save`` writes it."""
    with place.open("rb") as handle:
        return handle.read(4) == _ZIP


def ends_with(place: pathlib.Path, end: bytes) -> bool:
    """Return whether the last bytes of a file are these."""
    with place.open("rb") as handle:
        handle.seek(max(0, place.stat().st_size - len(end)))
        return handle.read() == end


@functools.lru_cache(maxsize=4096)
def _lacks_end(path: str, size: int, _at: int) -> bool:
    """Return whether a file lacks its end: an archive (torch.save) without its directory, safetensors, JSON."""
    place = pathlib.Path(path)
    with place.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(_ZIP):
            handle.seek(max(0, size - _ZIP_TAIL))
            return b"PK\x05\x06" not in handle.read()
        if place.name.endswith(".safetensors"):
            return _lacks_tensors(head, handle, size)
    if place.name.endswith(".json") and size <= _SMALL:
        return not _is_json(place.read_bytes())
    return False


def _is_json(text: bytes) -> bool:
    """Return whether a text is JSON, or lines of JSON each."""
    for parts in ([text], text.splitlines()):
        with contextlib.suppress(ValueError):
            for part in parts:
                json.loads(part)
            return True
    return False


def _lacks_tensors(head: bytes, handle: t.BinaryIO, size: int) -> bool:
    length = int.from_bytes(head, "little")
    if len(head) == 8 and length > _MOST_HEADER:
        # A file that was cut has its first bytes: this one is of something else, whose end cannot be told.
        return False
    if len(head) < 8 or length > size:
        return True
    try:
        tensors = json.loads(handle.read(length))
        ends = [value["data_offsets"][1] for key, value in tensors.items() if key != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return True
    return size < 8 + length + max(ends, default=0)
