# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a pod: its container's log holds all, events and metrics as marked lines among the program's own.

A marked line is ``MARK`` and a JSON object ``{stream, pod, node, rank, attempt, seq, lines, data}``. ``seq`` counts the
marked lines of one container and ``lines`` its other lines so far: a reader sees by them that it has missed some, which
kubelets delete when a program prints faster than its log is read.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

from . import files

MARK = "\x1emuster\x1e"
_LONGEST = 64 << 10
# Of each line of the program so much is in the container's log: a kubelet deletes the beginning of one that grows
# faster than it is read, and with it what the ranks recorded.
_SHOWN = 16 << 10
_SHORTEST_SECRET = 6


class Output:
    """Writes whole lines to standard output and, where there is one, to a file that survives the pod."""

    def __init__(self, about: t.Mapping[str, t.Any], descriptor: int = 1) -> None:
        self.about = dict(about)
        self.descriptor = descriptor
        self.secrets: list[bytes] = []
        # Removes machine-read text from a line of the program before it is written.
        self.filter_line: t.Callable[[bytes], bytes] = lambda line: line
        # Called with each line of the program.
        self.hear: t.Callable[[bytes], None] = lambda _line: None
        self.seq = self.lines = 0
        self._rest = b""
        # Bytes of the line that the program is at which the container's log lacks, None at the beginning of a line.
        self._left_out: int | None = None
        self._file: int | None = None
        self._marks: int | None = None

    def hide(self, values: t.Iterable[str]) -> None:
        """Replace these values wherever the program prints them."""
        found = {line for value in values for line in value.splitlines() if len(line) >= _SHORTEST_SECRET}
        self.secrets = [value.encode() for value in sorted(found, key=len, reverse=True)]

    def keep(self, path: pathlib.Path) -> None:
        """Also append the program's output to ``path``, and marked lines beside it, until a write fails."""
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, how, 0o640)
            self._marks = os.open(path.with_suffix(".jsonl"), how, 0o640)
        except OSError as exc:
            self.say(f"the log cannot be kept in {path}: {exc.strerror}")

    def say(self, text: str) -> None:
        """Write a line of the collection for people."""
        self.program(b"" if not self._rest else b"\n")
        self._line(f"muster: {text}\n".encode())

    def mark(self, stream: str, data: t.Mapping[str, t.Any]) -> None:
        """Write one marked line."""
        self.seq += 1
        value = {"stream": stream, **self.about, "seq": self.seq, "lines": self.lines, "data": data}
        text = self._scrub((json.dumps(value, separators=(",", ":")) + "\n").encode(errors="replace"))
        _write(self.descriptor, MARK.encode() + text)
        if self._marks is not None and not _write(self._marks, text):
            os.close(self._marks)
            self._marks = None

    def program(self, data: bytes) -> None:
        """Pass on output of the program; an unfinished line waits for its end, so that lines never mix."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._take(line, ended=True)
        if len(self._rest) > _LONGEST:
            rest, self._rest = self._rest, b""
            self._take(rest, ended=False)

    def flush(self) -> None:
        """End the line that the program has begun."""
        if self._rest or self._left_out is not None:
            rest, self._rest = self._rest, b""
            self._take(rest, ended=True)

    def _take(self, part: bytes, ended: bool) -> None:
        """Write a part of a line: all of it beside the checkpoints, its beginning to the container's log."""
        text = self.filter_line(part + b"\n")
        if not text:
            return
        self.hear(text)
        line = self._clean(text)
        begins, left_out = self._left_out is None, self._left_out or 0
        shown = (line if len(line) <= _SHOWN else _cut(line)) if begins else b""
        self._write(line, shown)
        left_out += max(0, len(line) - len(shown))
        self._left_out = None if ended else left_out
        if ended and left_out:
            where = ", they are in the log beside the checkpoints" if self._file is not None else ""
            self._write(b"", f"muster: {left_out} bytes of the line above were left out here{where}\n".encode())

    def _line(self, text: bytes) -> None:
        line = self._clean(text)
        self._write(line, line)

    def _write(self, line: bytes, shown: bytes) -> None:
        self.lines += shown.count(b"\n")
        _write(self.descriptor, shown)
        if self._file is not None and not _write(self._file, line):
            os.close(self._file)
            self._file = None
            self.lines += 1
            _write(self.descriptor, b"muster: the kept log has no more room\n")

    def _clean(self, text: bytes) -> bytes:
        # Replaced by a space: without it, the text around a mark could form one.
        return self._scrub(text.replace(MARK.encode(), b" "))

    def _scrub(self, line: bytes) -> bytes:
        for value in self.secrets:
            line = line.replace(value, b"***")
        return line


class Tail:
    """Reads the whole new lines of a JSON-lines file; ``new``: without existing lines; ``since``: from this byte on."""

    def __init__(self, path: pathlib.Path, new: bool = False, since: int = 0) -> None:
        self.path = path
        self._offset = path.stat().st_size if new and path.exists() else since

    def lines(self) -> t.Iterator[dict[str, t.Any]]:
        """Yield the objects that were written since the last call; foreign lines are skipped."""
        try:
            if self.path.stat().st_size <= self._offset:
                return
            with open(self.path, "rb") as handle:
                handle.seek(self._offset)
                data = handle.read()
        except OSError:
            return
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        yield from files.parse_json_lines(data)


def _cut(line: bytes) -> bytes:
    """Return the beginning of a line, without the half of a letter at its end."""
    return line[:_SHOWN].decode(errors="ignore").encode() + b"\n"


def _write(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        # A reader that went away, or a full disk, must not end the job.
        return False
    return True
