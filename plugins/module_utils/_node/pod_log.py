# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a pod: its container's log holds all, events and metrics as marked lines among the program's own.

A marked line is ``MARK`` and a JSON object ``{stream, pod, node, rank, attempt, seq, lines, data}``. ``seq`` counts the
marked lines of one container and ``lines`` its other lines so far: a reader sees by them that it has missed some, which
kubelets delete when a program prints faster than its log is read.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

MARK = "\x1emuster\x1e"
_LONGEST = 64 << 10
_SHORTEST_SECRET = 6


class Output:
    """Writes whole lines to standard output and, where there is one, to a file that survives the pod."""

    def __init__(self, about: t.Mapping[str, t.Any], descriptor: int = 1) -> None:
        self.about = dict(about)
        self.descriptor = descriptor
        self.secrets: list[bytes] = []
        # Removes machine-read text from a line of the program before it is written.
        self.filter_line: t.Callable[[bytes], bytes] = lambda line: line
        self.seq = self.lines = 0
        self._rest = b""
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
            self._write_filtered(line + b"\n")
        if len(self._rest) > _LONGEST:
            self.flush()

    def flush(self) -> None:
        """End the line that the program has begun."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._write_filtered(rest + b"\n")

    def _write_filtered(self, line: bytes) -> None:
        text = self.filter_line(line)
        if text:
            self._line(text)

    def _line(self, line: bytes) -> None:
        # Replaced by a space: without it, the text around a mark could form one.
        line = self._scrub(line.replace(MARK.encode(), b" "))
        self.lines += line.count(b"\n")
        _write(self.descriptor, line)
        if self._file is not None and not _write(self._file, line):
            os.close(self._file)
            self._file = None
            self.lines += 1
            _write(self.descriptor, b"muster: the kept log has no more room\n")

    def _scrub(self, line: bytes) -> bytes:
        for value in self.secrets:
            line = line.replace(value, b"***")
        return line


class Tail:
    """Reads the whole new lines of a JSON-lines file; ``new``: without existing lines."""

    def __init__(self, path: pathlib.Path, new: bool = False) -> None:
        self.path = path
        self._offset = path.stat().st_size if new and path.exists() else 0

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
        for raw in data.splitlines():
            try:
                value = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def _write(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        # A reader that went away, or a full disk, must not end the job.
        return False
    return True
