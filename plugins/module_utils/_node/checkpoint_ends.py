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
_HDF5 = b"\x89HDF\r\n\x1a\n"
# Where its superblock has the address of its end, by the version of that (HDF5 File Format Specification, II.A); of
# addresses of 8 bytes, whose size is in the byte after the version, or four bytes after that.
_HDF5_END: t.Final = {0: (13, 40), 1: (13, 44), 2: (9, 28), 3: (9, 28)}
# Of safetensors (MAX_HEADER_SIZE in its source).
_MOST_HEADER = 100_000_000


def is_torn(place: pathlib.Path) -> bool:
    """Return whether a file lacks its end."""
    state = place.stat()
    return _lacks_end(str(place), state.st_size, state.st_mtime_ns)


def is_archive(place: pathlib.Path) -> bool:
    """Return whether a file is an archive, as ``torch.save`` writes it."""
    # A reader of a pipe waits.
    if not place.is_file():
        return False
    with place.open("rb") as handle:
        return handle.read(4) == _ZIP


def ends_with(place: pathlib.Path, end: bytes) -> bool:
    """Return whether the last bytes of a file are these."""
    with place.open("rb") as handle:
        handle.seek(max(0, place.stat().st_size - len(end)))
        return handle.read() == end


@functools.lru_cache(maxsize=4096)
def _lacks_end(path: str, size: int, _at: int) -> bool:
    """Return whether a file lacks its end: an archive (torch.save) without its directory, safetensors, HDF5, JSON."""
    place = pathlib.Path(path)
    with place.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(_ZIP):
            handle.seek(max(0, size - _ZIP_TAIL))
            return b"PK\x05\x06" not in handle.read()
        if head == _HDF5:
            return _is_cut_hdf5(head + handle.read(64), size)
        if place.name.endswith(".safetensors"):
            return _lacks_tensors(head, handle, size)
    if place.name.endswith(".json") and size <= _SMALL:
        return not _is_json(place.read_bytes())
    return False


def _is_json(text: bytes) -> bool:
    """Return whether a text is JSON, or lines of JSON each."""
    for parts in ([text], text.splitlines()):
        with contextlib.suppress(ValueError, RecursionError):
            for part in parts:
                json.loads(part)
            return True
    return False


def _is_cut_hdf5(head: bytes, size: int) -> bool:
    """Return whether a file of HDF5 is shorter than it says; the library refuses to open it then."""
    sizes_at, end_at = _HDF5_END.get(head[8] if len(head) > 8 else -1, (0, 0))
    if len(head) < end_at + 8 or not end_at:
        return len(head) < 48
    return head[sizes_at] == 8 and size < int.from_bytes(head[end_at : end_at + 8], "little")


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
        return size < 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return True
