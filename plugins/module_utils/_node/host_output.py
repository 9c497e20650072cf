# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a unit on its node: metrics out of its lines, and logs that keep their end when they grow too large.

A log is written by others, who hold it open. Its beginning is released to the file system in place (fallocate(2),
FALLOC_FL_PUNCH_HOLE), so that sizes and offsets stay what they are; where a file system cannot do that, it grows.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import threading
import time
import typing as t

from . import files, host_rank_output, metric_lines, pod_log

KEEP_BYTES = 64 << 20
# What was copied of the ranks' files is in the unit's log: one copy is kept.
RANK_KEEP_BYTES = 1 << 20
# Beside the log: how far it and the files of ranks were read, across restarts of the supervisor.
_OFFSETS = "read.json"
_PIECE = 1 << 20
_LOOK_S = 0.1
# What was printed within so long before it is read has the time of the reading.
_LATE_S = 2.0
_BOUND_S = 1.0
_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_BLOCK = 4096


class UnitOutput:
    """Watches the log of a unit, beside its supervisor, and puts the output of torchrun's ranks into it."""

    def __init__(self, log: pathlib.Path, run: pathlib.Path, forms: metric_lines.Forms) -> None:
        self._log, self._run = log, run
        self._reader = metric_lines.LineReader(forms)
        # A program that reports its steps is not read where no patterns were given.
        self._reported = pod_log.Tail(run / "metrics.jsonl") if self._reader.is_guessed else None
        self._kept = log.with_name(_OFFSETS)
        kept = files.read_json(self._kept)
        # Until when the log is known to have been read; nothing was printed before that is read from now on.
        self._read_at = self._kept.stat().st_mtime if isinstance(kept, dict) else time.time()
        kept = kept if isinstance(kept, dict) else {}
        size = log.stat().st_size if log.exists() else 0
        # Where the supervisor before this one ended, its last lines were printed and not yet read.
        self._offset = min(int(kept.get("log", size)), size)
        self._bounded_at = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ranks = host_rank_output.RankOutput(run, log, kept.get("ranks"))
        with contextlib.suppress(OSError):
            self._keep_offsets()

    def start(self) -> None:
        """Watch until :meth:`close`; first take in what the supervisor before this one left, before ranks begin."""
        self.read_new(ended=True)
        threading.Thread(target=self._watch, name="output", daemon=True).start()

    def close(self) -> None:
        """Take in what was written last, and end."""
        self._ended.set()
        self.read_new(ended=True)

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.read_new()

    def read_new(self, ended: bool = False) -> None:
        """Copy what the ranks wrote, turn new lines into metrics and bound the logs."""
        with self._lock, contextlib.suppress(OSError):
            more, began = True, time.time()
            while more:
                # A program may print until its end, so each piece is parsed and bounded before the next.
                more, before = self._ranks.copy_new(ended), self._offset
                while self._reader and self._parse_piece(ended and not more):
                    self._bound_logs()
                if self._offset != before or self._ranks.copied:
                    self._keep_offsets()
                self._bound_logs(now=ended and not more)
            self._read_at = began

    def _bound_logs(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._bounded_at < _BOUND_S:
            return
        self._bounded_at = time.monotonic()
        bound_log(self._log, self._offset if self._reader else None, KEEP_BYTES)
        for place in self._run.glob(host_rank_output.FILES):
            bound_log(place, self._ranks.offsets.get(str(place), 0), RANK_KEEP_BYTES)

    def _parse_piece(self, ended: bool) -> bool:
        """Take in whole lines of one piece of the log; return whether there may be more."""
        with open(self._log, "rb") as handle:
            handle.seek(self._offset)
            data = handle.read(_PIECE)
        cut = len(data) if ended and len(data) < _PIECE else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut and len(data) == _PIECE:
            cut = len(data)
        self._offset += cut
        # Lines of ranks that have ended belong to their attempt, however late they are read.
        at = min(time.time(), self._ranks.printed_at or time.time())
        found = self._reader.read(data[:cut].decode(errors="replace"), at)
        if found and self._reported and any(map(_is_own_step, self._reported.lines())):
            self._reader.stop()
        elif found:
            # Lines of one moment that may have been printed long before it have no times of their own.
            late = {"late_s": round(at - self._read_at, 3)} if at - self._read_at > _LATE_S else {}
            dated = ({**line, **(late if line["at"] == at else {})} for line in found)
            lines = "".join(files.json_line({**line, "printed": True}) for line in dated)
            files.append_text(self._run / "metrics.jsonl", lines)
        return len(data) == _PIECE

    def _keep_offsets(self) -> None:
        """Record how far the files were read. Not forced to the disk, where checkpoints have precedence."""
        temporary = self._kept.with_suffix(".tmp")
        # Without patterns the log is not read: a later start that has some begins at its end.
        log = {"log": self._offset} if self._reader else {}
        temporary.write_text(json.dumps({**log, "ranks": self._ranks.offsets}))
        os.replace(temporary, self._kept)


def _is_own_step(line: t.Mapping[str, t.Any]) -> bool:
    return "step" in line and "printed" not in line


def bound_log(place: pathlib.Path, unread: int | None, keep: int) -> int:
    """Release the beginning of a log once it takes twice ``keep`` bytes of the disk; return the released bytes.

    :param unread: the offset from which the file is still to be read here; None when it is not.
    """
    try:
        stat = place.stat()
        end = stat.st_size if unread is None else unread
        length = min(stat.st_size - keep, end) // _BLOCK * _BLOCK
        if stat.st_blocks * 512 < 2 * keep or length <= 0:
            return 0
        descriptor = os.open(place, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        if not _punch(descriptor, length):
            return 0
        # What was printed last keeps its time: lines that are read late are dated by it.
        with contextlib.suppress(OSError):
            os.utime(descriptor, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return length
    finally:
        os.close(descriptor)


def _punch(descriptor: int, length: int) -> bool:
    # Only for a log that has grown large.
    import ctypes

    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None:
        return False
    sizes = (ctypes.c_int64(0), ctypes.c_int64(length))
    return bool(fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, *sizes) == 0)
