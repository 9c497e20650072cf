# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a node's ranks, which torchrun has each write into files of its own, put into the one log of the node.

torchrun could show the lines itself (``--tee``). It reads them one by one in a thread each, falls behind a program that
prints much, and is stopped together with the ranks: then the last lines, the ones with the reason, are not shown.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import os
import pathlib
import time

from . import files

# Below the run's folder: launch of torchrun / attempt / local rank.
FILES = "ranks/*/attempt_*/*/std*.log"
# In the same folder, written by ``rank.py``: the rank in the whole world.
RANK_FILE = "rank"
_OFFSETS = "copied.json"
_PIECE = 1 << 18
# A line whose end does not come is shown after this long.
_UNENDED_S = 1.0


class RankOutput:
    """Copies whole lines of the ranks' files to ``log``, each with its rank, and knows how far across restarts."""

    def __init__(self, run: pathlib.Path, log: pathlib.Path) -> None:
        self._run, self._log = run, log
        self._kept = run / "ranks" / _OFFSETS
        offsets = files.read_json(self._kept)
        # Without a record of an earlier supervisor, what lies there is taken as copied: no line appears twice.
        self.offsets: dict[str, int] = (
            {str(name): int(offset) for name, offset in offsets.items()}
            if isinstance(offsets, dict)
            else {str(place): place.stat().st_size for place in run.glob(FILES)}
        )
        self._unended: dict[str, float] = {}
        # When the rank that writes to a file began.
        self._begun: dict[str, int] = {}

    def copy_new(self, ended: bool = False) -> bool:
        """Copy at most one piece of each file; return whether one has more."""
        more, copied = False, False
        for place in sorted(self._run.glob(FILES)):
            before = self._find_offset(place)
            if place.stat().st_size <= before:
                continue
            data = _read_piece(place, before)
            cut = self._find_cut(str(place), data, ended)
            if cut:
                with open(self._log, "ab") as handle:
                    handle.write(label_lines(data[:cut], _read_rank(place)))
                self.offsets[str(place)] = before + cut
                copied = True
            more = more or len(data) == _PIECE
        if copied:
            self._keep_offsets()
        return more

    def _find_offset(self, place: pathlib.Path) -> int:
        """Return how far a file was copied: not at all where a new rank has emptied it and writes to it.

        torchrun counts restarts that a failure on this node caused; after one elsewhere it uses the same files again.
        """
        name, begun = str(place), _read_begin(place)
        if self._begun.setdefault(name, begun) != begun or place.stat().st_size < self.offsets.get(name, 0):
            self._begun[name], self.offsets[name] = begun, 0
        return self.offsets.get(name, 0)

    def _find_cut(self, place: str, data: bytes, ended: bool) -> int:
        """Return how many bytes are copied: whole lines, or all that there is at the end or of a line without end."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if cut:
            self._unended.pop(place, None)
        if cut == len(data) or (ended and len(data) < _PIECE):
            return len(data)
        if cut:
            return cut
        since = self._unended.setdefault(place, time.monotonic())
        if len(data) == _PIECE or time.monotonic() - since > _UNENDED_S:
            del self._unended[place]
            return len(data)
        return 0

    def _keep_offsets(self) -> None:
        """Record how far the files were copied. Not forced to the disk, where checkpoints have precedence."""
        temporary = self._kept.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.offsets))
        os.replace(temporary, self._kept)


def label_lines(data: bytes, rank: str) -> bytes:
    """Return ``data`` as lines that begin with the rank that printed them; a carriage return ends one, too."""
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    prefix = f"[default{rank}]:".encode()
    return prefix + text.removesuffix(b"\n").replace(b"\n", b"\n" + prefix) + b"\n"


def _read_piece(place: pathlib.Path, offset: int) -> bytes:
    with open(place, "rb") as handle:
        handle.seek(offset)
        return handle.read(_PIECE)


def _read_begin(place: pathlib.Path) -> int:
    try:
        return place.with_name(RANK_FILE).stat().st_mtime_ns
    except OSError:
        return 0


def _read_rank(place: pathlib.Path) -> str:
    try:
        return place.with_name(RANK_FILE).read_text()
    except OSError:
        # Its recorder did not start: the folder is named by the rank on the node.
        return place.parent.name
