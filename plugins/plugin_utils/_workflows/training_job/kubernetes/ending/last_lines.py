# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the last lines of a run that has ended are waited for.

An engine says that a run has ended before its pods' logs are read, and long before: a run may have ended while it was
not followed. Logs of ended containers are finite, so they are read for as long as lines come.
"""

from __future__ import annotations

import time

from ....._kube.api.kinds import KubeObject
from ....._kube.nodes.lost_pods import FINISHED
from ...follower import RunOutcome

# So long nothing may come before the rest is given up.
_QUIET_S = 20.0
# A wait that lasts longer than this is said.
_MOMENT_S = 3.0
# A node that does not answer is noticed after 40 to 50 s by Kubernetes' defaults.
_SILENT_S = 75.0


class FoundEnd:
    """How a run ended, when that was found (``at``), and until when its last lines are waited for.

    :param by_engine: its engine says that it ended; otherwise it was asked to end.
    :param saves_s: seconds that a run which was asked to end may take to save.
    :param quiet_s: after so many seconds without a line the rest is given up.
    """

    def __init__(
        self, outcome: RunOutcome, *, by_engine: bool = False, saves_s: float = 0.0, quiet_s: float = _QUIET_S
    ) -> None:
        self.outcome, self._by_engine = outcome, by_engine
        self.at = time.time()
        self._began = self._line_at = time.monotonic()
        self._is_said = False
        self._limit_s = quiet_s + saves_s
        self._quiet_s = quiet_s

    def take_line(self) -> None:
        """Note that a line was read."""
        self._line_at = time.monotonic()

    def is_slow(self) -> bool:
        """Return, once, that the end takes longer than a moment."""
        if self._is_said or time.monotonic() < self._began + _MOMENT_S:
            return False
        self._is_said = True
        return True

    def must_wait(self, reading: bool, alive: bool, silent: bool) -> bool:
        """Return whether more lines may come.

        :param reading: whether a log is still being read.
        :param alive: whether a container of the run still runs.
        :param silent: whether a pod is being deleted whose end its node has not confirmed.
        """
        now = time.monotonic()
        if silent and self._by_engine and self.outcome.cause == "crash" and now <= self._began + _SILENT_S:
            # Its node may be lost: ranks elsewhere fail before the cluster says so.
            return True
        if not reading or now <= self._began + self._limit_s:
            return reading
        return self._by_engine and not alive and now <= self._line_at + self._quiet_s


def is_over(pod: KubeObject) -> bool:
    """Return whether all containers of a pod have ended, by the word of its node."""
    return (pod.get("status") or {}).get("phase") in FINISHED
