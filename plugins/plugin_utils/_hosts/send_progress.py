# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of files on their way to the nodes: how much there is, said at once, and how far it is, every few
seconds.
"""

from __future__ import annotations

import threading
import time
import typing as t

from .file_sync import FileTree

# Less is sent before a line about it could be read.
_WORTH_BYTES = 4 << 20
_SAY_S = 5.0


class SendProgress:
    """Counts the bytes that all nodes have received; threads share it.

    :param missing: what each node lacks: checksum -> bytes that it has of the file already.
    """

    def __init__(
        self,
        trees: t.Iterable[FileTree],
        missing: t.Sequence[t.Mapping[str, int]],
        say: t.Callable[[str], None],
        now: t.Callable[[], float] = time.monotonic,
    ) -> None:
        sizes = {file.sha256: file.size for tree in trees for file in tree.files}
        needs = [sum(sizes.get(sha, have) - have for sha, have in node.items()) for node in missing]
        self._total, self._sent = sum(needs), 0
        self._say, self._now, self._said_at = say, now, now()
        self._lock = threading.Lock()
        if self._is_worth_saying():
            nodes = sum(1 for need in needs if need)
            say(f"sending {_megabytes(self._total)} of code and data to {nodes} node{'s' if nodes > 1 else ''}")

    def count(self, length: int) -> None:
        """Take note of ``length`` bytes that arrived."""
        with self._lock:
            self._sent += length
            due = self._now() - self._said_at >= _SAY_S
            if not (due and self._is_worth_saying()):
                return
            self._said_at = self._now()
            self._say(f"sent {_megabytes(self._sent)} of {_megabytes(self._total)}")

    def _is_worth_saying(self) -> bool:
        return self._total >= _WORTH_BYTES


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
