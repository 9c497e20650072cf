# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exit code of a pod, from those of its launcher and of its ranks.

The launcher's exit code is the container's, unless ranks here failed: then it is that of the first failed rank, so that
a policy on exit codes gets the program's own code and not its launcher's. A pod that was asked to stop exits with 143,
whatever the program's exit code is.
"""

from __future__ import annotations

import time
import typing as t

# The pod could not reach another one, or its port was taken.
EXIT_UNREACHABLE = 69
STOPPED = 143
# With fatal exit codes, a node that failed because of another one exits after it.
_YIELD_S = 3.0


class ExitCode:
    """What the ranks of one pod ended with. ``fatal_codes``: exit codes after which nothing is started again."""

    def __init__(self, fatal_codes: t.Sequence[int], nodes: int) -> None:
        self._fatal_codes, self._nodes = tuple(fatal_codes), nodes
        self._first, self._fatal = 0, 0

    def add_failure(self, code: int) -> bool:
        """Note a failed rank's exit code; return whether it is fatal."""
        self._first = self._first or code
        if code in self._fatal_codes:
            self._fatal = code
        return code in self._fatal_codes

    def choose(self, launcher_code: int, *, is_stopped: bool) -> int:
        """Return the container's exit code; with fatal codes, after a moment in which another node exits first."""
        if self._fatal:
            return self._fatal
        if is_stopped:
            return self._first or STOPPED
        code = self._first if self._first and launcher_code != 0 else launcher_code
        if code and self._fatal_codes and self._nodes > 1:
            time.sleep(_YIELD_S)
        return code
