# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a node's ranks, each of which prints into files of its own, put into the one log of the node.

torchrun could write and show the lines itself (``--redirects``, ``--tee``). It reads them one by one in a thread each,
falls behind a program that prints much, and is stopped together with the ranks: then the last lines, the ones with the
reason, are not shown. It also deletes the files of ranks that it starts again after a failure on another node. So
``rank.py`` opens the files: one for each rank of each attempt, which nothing empties.
"""

from __future__ import annotations

import pathlib
import time
import typing as t

# Below the run's folder: attempt / rank in the whole world.
FILES = "ranks/attempt_*/*/std*.log"
_PIECE = 1 << 18
# A line whose end does not come is shown after this long.
_UNENDED_S = 1.0


class RankOutput:
    """Copies whole lines of the ranks' files to ``log``, each with its rank.

    :param offsets: how far an earlier supervisor copied each file; None where there is no record of that. Then what
        lies there is taken as copied, so that no line appears twice.
    """

    def __init__(self, run: pathlib.Path, log: pathlib.Path, offsets: t.Mapping[str, int] | None) -> None:
        self._run, self._log = run, log
        sizes = {str(place): place.stat().st_size for place in run.glob(FILES)}
        # A power cut may have taken the end of a file; what is left of it was copied.
        self.offsets: dict[str, int] = (
            sizes if offsets is None else {name: min(at, sizes[name]) for name, at in offsets.items() if name in sizes}
        )
        # Whether the last call copied anything.
        self.copied = False
        # When what it copied was printed at the latest; None when that is of the attempt that runs now.
        self.printed_at: float | None = None
        self._unended: dict[str, float] = {}

    def copy_new(self, ended: bool = False) -> bool:
        """Copy at most one piece of each file; return whether one has more.

        Attempts come in their order: what one printed last is copied before the first lines of the next.
        """
        attempts: dict[tuple[int, ...], list[pathlib.Path]] = {}
        for place in sorted(self._run.glob(FILES)):
            attempts.setdefault(_read_attempt(place), []).append(place)
        self.copied, self.printed_at = False, None
        newest = max(attempts, default=())
        for attempt in sorted(attempts):
            # The ranks of an attempt have ended before those of the next begin.
            is_over = attempt < newest
            rests = [self._copy_piece(place, ended or is_over) for place in attempts[attempt]]
            if self.copied and (ended or is_over):
                self.printed_at = max(place.stat().st_mtime for place in attempts[attempt])
            if self.copied and is_over:
                return True
            if any(rests):
                return True
        return False

    def _copy_piece(self, place: pathlib.Path, ended: bool) -> bool:
        """Copy a piece of a file; return whether it has more."""
        size, name = place.stat().st_size, str(place)
        before = self.offsets.get(name, 0)
        if size < before:
            # The program opened its output anew and emptied it.
            before = self.offsets[name] = 0
        if size == before:
            return False
        data = _read_piece(place, before)
        cut = self._find_cut(name, data, ended)
        if cut:
            with open(self._log, "ab") as handle:
                handle.write(label_lines(data[:cut], place.parent.name))
            self.offsets[name] = before + cut
            self.copied = True
        return len(data) == _PIECE

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


def label_lines(data: bytes, rank: str) -> bytes:
    """Return ``data`` as lines that begin with the rank that printed them; a carriage return ends one, too."""
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    prefix = f"[default{rank}]:".encode()
    return prefix + text.removesuffix(b"\n").replace(b"\n", b"\n" + prefix) + b"\n"


def _read_attempt(place: pathlib.Path) -> tuple[int, ...]:
    """Return the first attempt of the start that a file belongs to, and its own: the latter may come again later."""
    numbers = place.parent.parent.name.removeprefix("attempt_").split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


def _read_piece(place: pathlib.Path, offset: int) -> bytes:
    with open(place, "rb") as handle:
        handle.seek(offset)
        return handle.read(_PIECE)
