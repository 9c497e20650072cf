# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python stacks of another process, read from its memory: nothing is installed, and the process is not stopped.

CPython describes its own structures from 3.13 on (``_Py_DebugOffsets`` at the start of ``_PyRuntime``,
Include/internal/pycore_runtime.h); for 3.11 and 3.12 their offsets are in the table below (Include/internal and
Include/cpython of those versions, 64 bits). Functions, files and line numbers are read, never values of variables.

The kernel allows it for processes of the same user; where Yama's ``ptrace_scope`` is 1, for descendants only, such as
the ranks of a supervisor (the kernel's documentation of Yama).
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import re
import struct
import typing as t

from . import processes

_COOKIE = b"xdebugpy"
_MOST_THREADS, _MOST_FRAMES, _LONGEST_NAME = 512, 200, 4096
_TRIES = 3
_ELF = b"\x7fELF"
_PT_LOAD = 1
_PAGE = 4095
# The fields of _Py_DebugOffsets of 3.13 behind its cookie, version and the mark of a free-threaded build.
_FIELDS_313 = (
    "runtime_size", "finalizing", "interpreters_head", "interpreter_size", "id", "next", "threads_head", "gc",
    "modules", "sysdict", "builtins", "ceval_gil", "gil_state", "gil_enabled", "gil_locked", "gil_holder",
    "thread_size", "prev", "thread_next", "interp", "current_frame", "thread_id", "native_thread_id", "datastack",
    "status", "frame_size", "previous", "executable", "instr_ptr", "localsplus", "owner", "code_size", "filename",
    "name", "qualname", "linetable", "firstlineno", "argcount", "localsplusnames", "localspluskinds",
    "co_code_adaptive",
)  # fmt: skip
# Behind them: object, type, tuple, list, dict, float, long and bytes, of which these are needed.
_BYTES_AT, _UNICODE_AT = 61, 64
_TABLE = {
    (3, 11): {
        "interpreters_head": 40, "threads_head": 16, "thread_next": 8, "native_thread_id": 160, "cframe": 56,
        "cframe_frame": 8, "previous": 48, "executable": 32, "instr_ptr": 56, "owner": 69, "filename": 112,
        "qualname": 128, "linetable": 136, "firstlineno": 72, "co_code_adaptive": 184, "bytes_size": 16,
        "bytes_data": 32, "unicode_length": 16, "ascii_data": 48, "unicode_data": 72,
    },
    (3, 12): {
        "interpreters_head": 40, "threads_head": 72, "thread_next": 8, "native_thread_id": 144, "cframe": 56,
        "cframe_frame": 0, "previous": 8, "executable": 0, "instr_ptr": 56, "owner": 70, "filename": 112,
        "qualname": 128, "linetable": 136, "firstlineno": 68, "co_code_adaptive": 192, "bytes_size": 16,
        "bytes_data": 32, "unicode_length": 16, "ascii_data": 40, "unicode_data": 56,
    },
}  # fmt: skip
_PYTHON = re.compile(r"(?:^|/)(?:libpython|python)(3)\.(\d+)[^/]*$|(?:^|/)python3?$")


class StackFrame(t.NamedTuple):
    """A frame of a stack: function, file and line."""

    name: str
    path: str
    line: int


class StackError(Exception):
    """Why the stacks of a process cannot be read."""


class StackReader:
    """Reads the stacks of one process again and again.

    :raises StackError: the process has ended, is not Python, is of a version that is not known, or may not be read.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            library, base = _find_runtime(pid)
            self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise StackError(_explain(exc)) from exc
        self._lines: dict[tuple[int, ...], int] = {}
        self._names: dict[int, tuple[bytes, str]] = {}
        try:
            self._runtime = base + _find_section(_path_of(pid, library), b".PyRuntime")
            self.version, self._offsets = self._read_offsets(library)
        except (OSError, struct.error, ValueError, IndexError) as exc:
            self.close()
            raise StackError(_explain(exc)) from exc
        except StackError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the process."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def read_main(self) -> list[StackFrame]:
        """Return the frames of the main thread, the innermost first, as two looks in succession have seen them.

        A thread that runs may change its frames between two looks: the last one counts then.

        :raises StackError: the process has ended, or its frames did not hold together.
        """
        before = self.read_threads(self.pid).get(self.pid)
        for _try in range(_TRIES):
            now = self.read_threads(self.pid).get(self.pid)
            if now == before:
                break
            before = now
        if before is None:
            raise StackError("its main thread runs no Python")
        return before

    def read_threads(self, only: int | None = None) -> dict[int, list[StackFrame]]:
        """Return by thread id the frames of each thread, the innermost first.

        :param only: the one thread to read.
        :raises StackError: as of :meth:`read_main`.
        """
        try:
            return self._walk_threads(only)
        except (OSError, struct.error, ValueError, IndexError, OverflowError) as exc:
            raise StackError(_explain(exc)) from exc

    def _walk_threads(self, only: int | None) -> dict[int, list[StackFrame]]:
        at, found = self._offsets, dict[int, list[StackFrame]]()
        thread = self._pointer(self._pointer(self._runtime + at["interpreters_head"]) + at["threads_head"])
        count = 0
        while thread and count < _MOST_THREADS:
            count += 1
            number = self._pointer(thread + at["native_thread_id"])
            if only is None or number == only:
                found[number] = self._walk_frames(self._first_frame(thread))
            thread = self._pointer(thread + at["thread_next"])
        return found

    def _first_frame(self, thread: int) -> int:
        at = self._offsets
        if "current_frame" in at:
            return self._pointer(thread + at["current_frame"])
        return self._pointer(self._pointer(thread + at["cframe"]) + at["cframe_frame"])

    def _walk_frames(self, frame: int) -> list[StackFrame]:
        at, frames, count = self._offsets, list[StackFrame](), 0
        while frame and count < _MOST_FRAMES:
            count += 1
            raw = self._read(frame, 80)
            code = _pointer_in(raw, at["executable"])
            # Frames of C code between those of Python have no code of their own (owner 3).
            if code and raw[at["owner"]] < 3:
                frames.append(self._describe(code, _pointer_in(raw, at["instr_ptr"])))
            frame = _pointer_in(raw, at["previous"])
        return frames

    def _describe(self, code: int, instruction: int) -> StackFrame:
        at = self._offsets
        raw = self._read(code, 200)
        names = _pointer_in(raw, at["qualname"]), _pointer_in(raw, at["filename"]), _pointer_in(raw, at["linetable"])
        index = (instruction - code - at["co_code_adaptive"]) // 2
        key = (code, *names, index)
        if key not in self._lines:
            first = struct.unpack_from("<i", raw, at["firstlineno"])[0]
            size = self._pointer(names[2] + at["bytes_size"])
            if not 0 <= size < 1 << 20:
                raise ValueError("line table")
            self._lines[key] = find_line(self._read(names[2] + at["bytes_data"], size), first, index)
        return StackFrame(self._text(names[0]), self._text(names[1]), self._lines[key])

    def _text(self, address: int) -> str:
        """Return a string of the process (PyASCIIObject or PyCompactUnicodeObject, Include/cpython/unicodeobject.h)."""
        at = self._offsets
        head = self._read(address, at["ascii_data"])
        known = self._names.get(address)
        if known is not None and known[0] == head[at["unicode_length"] :]:
            return known[1]
        length = min(_pointer_in(head, at["unicode_length"]), _LONGEST_NAME)
        state = struct.unpack_from("<I", head, at["unicode_length"] + 16)[0]
        width = state >> 2 & 7
        if width not in (1, 2, 4):
            raise ValueError("string")
        place = at["ascii_data"] if state >> 6 & 1 else at["unicode_data"]
        codec = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]
        text = self._read(address + place, length * width).decode(codec, "replace")
        self._names[address] = head[at["unicode_length"] :], text
        return text

    def _read_offsets(self, library: str) -> tuple[tuple[int, int], dict[str, int]]:
        raw = self._read(self._runtime, 24 + 8 * (_UNICODE_AT + 4))
        if raw[:8] == _COOKIE:
            version, free_threaded = struct.unpack_from("<QQ", raw, 8)
            known = version >> 24 & 255, version >> 16 & 255
            if known != (3, 13) or free_threaded:
                kind = ", free-threaded" if free_threaded else ""
                raise StackError(f"stacks of Python {known[0]}.{known[1]}{kind} cannot be read from outside")
            values = struct.unpack_from(f"<{_UNICODE_AT + 4}Q", raw, 24)
            found = dict(zip(_FIELDS_313, values, strict=False))
            found["bytes_size"], found["bytes_data"] = values[_BYTES_AT + 1], values[_BYTES_AT + 2]
            found["unicode_length"] = values[_UNICODE_AT + 2]
            found["ascii_data"] = values[_UNICODE_AT + 3]
            # utf8_length and utf8 come between the head and the characters of a string that is not ASCII.
            found["unicode_data"] = found["ascii_data"] + 16
            return known, found
        for known, offsets in _TABLE.items():
            if f"python{known[0]}.{known[1]}" in library:
                return known, offsets
        match = _PYTHON.search(library)
        name = f"Python 3.{match.group(2)}" if match and match.group(2) else "this version of Python"
        raise StackError(f"stacks of {name} cannot be read from outside")

    def _read(self, address: int, size: int) -> bytes:
        data = os.pread(self._memory, size, address)
        if len(data) != size:
            raise OSError(0, "its memory could not be read")
        return data

    def _pointer(self, address: int) -> int:
        return int(struct.unpack("<Q", self._read(address, 8))[0])


def _pointer_in(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", raw, at)[0])


def find_line(table: bytes, first: int, index: int) -> int:
    """Return the line of a code unit, by a code object's line table (CPython's notes on its location table).

    :param first: the line of the definition. :param index: the number of the code unit.
    """
    line, at, unit = first, 0, 0
    while at < len(table):
        kind, length = table[at] >> 3 & 15, (table[at] & 7) + 1
        delta, at = _read_entry(table, at + 1, kind)
        line, unit = line + delta, unit + length
        if unit > index:
            break
    return line


def _read_entry(table: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return by how many lines an entry of a line table moves on, and where the next one begins."""
    if kind in (13, 14):
        delta, at = _read_varint(table, at)
        # Columns, of which nothing is needed, follow the line.
        for _column in range(3 if kind == 14 else 0):
            _unused, at = _read_varint(table, at)
        return (-(delta >> 1) if delta & 1 else delta >> 1), at
    if 10 <= kind <= 12:
        return kind - 10, at + 2
    return 0, at + (1 if kind < 10 else 0)


def _read_varint(table: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            return value, at


def find_python(pid: int) -> int:
    """Return the process that runs Python: ``pid`` itself, or the first of its descendants that does.

    A rank may be a shell script around its program. The process itself is returned where none is found.
    """
    seen, queue = 0, [pid]
    while queue and seen < 32:
        seen += 1
        one = queue.pop(0)
        try:
            _find_runtime(one)
            return one
        except (OSError, StackError):
            queue += processes.list_children(one)
    return pid


def _find_runtime(pid: int) -> tuple[str, int]:
    """Return the file that holds ``_PyRuntime`` (libpython, else the program itself) and where it begins in memory."""
    found: tuple[str, int] | None = None
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as handle:
        for row in handle:
            fields = row.split(None, 5)
            if len(fields) < 6 or int(fields[2], 16) or not (path := fields[5].rstrip("\n")).startswith("/"):
                continue
            if not _PYTHON.search(path):
                continue
            base = int(fields[0].partition("-")[0], 16)
            if "libpython3." in path:
                return path, base
            found = found or (path, base)
    if found is None:
        raise StackError("it is not a Python program")
    return found


def _path_of(pid: int, library: str) -> str:
    """Return the path of a file of a process, which may be in a container."""
    inside = f"/proc/{pid}/root{library}"
    return inside if os.path.exists(inside) else library


def _find_section(path: str, name: bytes) -> int:
    """Return where a section begins behind the file's first page in memory (System V ABI, ELF-64)."""
    with open(path, "rb") as handle:
        head = handle.read(64)
        if head[:4] != _ELF or head[4] != 2 or head[5] != 1:
            raise StackError("it is not a program for 64 bits, little-endian")
        programs, sections = struct.unpack_from("<QQ", head, 32)
        program_size, program_count, size, count, names_at = struct.unpack_from("<HHHHH", head, 54)
        handle.seek(sections)
        table = handle.read(size * count)
        names_place, names_size = struct.unpack_from("<QQ", table, names_at * size + 24)
        handle.seek(names_place)
        names = handle.read(names_size)
        handle.seek(programs)
        loads = handle.read(program_size * program_count)
    first: int = next(
        struct.unpack_from("<Q", loads, number * program_size + 16)[0]
        for number in range(program_count)
        if struct.unpack_from("<I", loads, number * program_size)[0] == _PT_LOAD
    )
    for number in range(count):
        start = struct.unpack_from("<I", table, number * size)[0]
        if names[start : names.index(b"\0", start)] == name:
            return int(struct.unpack_from("<Q", table, number * size + 16)[0]) - (first & ~_PAGE)
    raise StackError("this version of Python cannot be read from outside (no .PyRuntime)")


def _explain(exc: Exception) -> str:
    if isinstance(exc, PermissionError):
        return "not permitted (another user's, or kernel.yama.ptrace_scope)"
    if isinstance(exc, (FileNotFoundError, ProcessLookupError)):
        return "it has ended"
    return f"its memory did not hold together ({type(exc).__name__})"
