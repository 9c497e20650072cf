# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step that a file of ``torch.save`` holds, read without PyTorch.

Such a file is a zip archive with a pickle, ``NAME/data.pkl`` (``torch/serialization.py``: ``_save``). The pickle is not
executed: its opcodes are followed with a stack on which only numbers, texts, dicts and lists are what they are, and
anything else, such as a tensor, is unknown.
"""

from __future__ import annotations

import functools
import pathlib
import pickletools
import struct
import typing as t
import zipfile
import zlib

from . import checkpoint_ends
from .checkpoint_table import HELD, LAYOUTS, Key

# A state of 10,000 tensors has 1 MB of about 300,000 opcodes.
_MOST_BYTES = 32 << 20
_MOST_OPCODES = 2_000_000
_MOST_STEP = 2**53
_MARK: t.Final = object()
_UNKNOWN: t.Final = object()
_VALUES: t.Final = frozenset(("int", "int_or_bool", "str", "bytes_or_str"))
# What a damaged or strange archive or pickle raises.
_DAMAGE: t.Final = (
    *(OSError, ValueError, LookupError, EOFError, RuntimeError, MemoryError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def read_step(place: pathlib.Path, layout: str) -> int | None:
    """Return the step that a checkpoint of a layout holds, None where it holds none that can be read."""
    known = LAYOUTS.get(layout)
    keys = known.held if known else HELD
    place = place / known.state if known and known.state else place
    try:
        state = place.stat()
        return _read_file(str(place), state.st_size, state.st_mtime_ns, keys) if keys else None
    except OSError:
        return None


@functools.lru_cache(maxsize=4096)
def _read_file(path: str, _size: int, _at: int, keys: tuple[Key, ...]) -> int | None:
    try:
        if not checkpoint_ends.is_archive(pathlib.Path(path)):
            return None
        with zipfile.ZipFile(path) as archive:
            entry = next((item for item in archive.infolist() if item.filename.endswith("/data.pkl")), None)
            if entry is None or entry.file_size > _MOST_BYTES:
                return None
            held = _follow(archive.read(entry))
    except _DAMAGE:
        return None
    return next((step for key in keys if (step := _find(held, key)) is not None), None)


def _find(held: object, key: Key) -> int | None:
    """Return the step at a path of keys; of a list it is in the last item."""
    for part in key:
        held = held[-1] if isinstance(held, list) and held else held
        held = held.get(part) if isinstance(held, dict) else None
    if not isinstance(held, int) or isinstance(held, bool) or not 0 <= held < _MOST_STEP:
        return None
    return held


def _follow(pickled: bytes) -> object:
    """Return what a pickle makes, as far as that is of numbers, texts, dicts and lists."""
    stack: list[t.Any] = []
    memo: dict[int, t.Any] = {}
    for count, (opcode, given, _at) in enumerate(pickletools.genops(pickled)):
        name = opcode.name
        if name == "STOP":
            return stack[-1]
        if count >= _MOST_OPCODES:
            break
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if given is None else int(given)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(given or 0)])
        else:
            _apply(opcode, given, stack)
    return None


def _apply(opcode: pickletools.OpcodeInfo, given: t.Any, stack: list[t.Any]) -> None:
    """Do to the stack what an opcode does: its own table says what it takes and leaves."""
    name, taken = opcode.name, [item.name for item in opcode.stack_before]
    if "mark" in taken:
        at, below = len(stack) - 1 - stack[::-1].index(_MARK), taken.index("mark")
        items = stack[at + 1 :]
    else:
        below = 1 if name in ("SETITEM", "APPEND") else 0
        at = len(stack) - len(taken) + below
        items = stack[at:]
    owners = stack[at - below : at]
    del stack[at - below :]
    if name in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
        stack.append(_fill(owners[0], items))
        return
    for left in opcode.stack_after:
        if name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_DICT", "DICT"):
            stack.append(_fill({}, items))
        elif name in ("EMPTY_LIST", "LIST"):
            stack.append(_fill([], items))
        else:
            stack.append(given if left.name in _VALUES else _UNKNOWN)


def _fill(owner: t.Any, items: t.Sequence[t.Any]) -> t.Any:
    if isinstance(owner, dict):
        owner.update((key, value) for key, value in zip(items[::2], items[1::2], strict=True) if isinstance(key, str))
    elif isinstance(owner, list):
        owner.extend(items)
    return owner
