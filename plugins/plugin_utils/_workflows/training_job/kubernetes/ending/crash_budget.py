# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a JobSet's gang has crashed more often than its job allows.

A JobSet counts a lost node as a crash when ranks elsewhere failed before the cluster noticed the loss. It may therefore
restart as often as both budgets allow together, and the controller that follows the run counts the crashes.
"""

from __future__ import annotations

import time

from ......module_utils._model.run_history import RunHistory
from ....._kube.api.kinds import KubeObject

# The cluster's word on a node comes by another watch than the restart that it caused.
_SETTLE_S = 1.0


class CrashBudget:
    """Counts the crashes of a run; ``allowed``: how many it may have."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._since: float | None = None

    def is_exceeded(self, main: KubeObject, story: RunHistory, *, hindered: bool) -> bool:
        """Return whether there were too many crashes, by the engine's count and by what was seen of the run.

        :param hindered: whether it is known why no rank began.
        """
        counted = int((main.get("status") or {}).get("restartsCountTowardsMax") or 0)
        seen = sum(attempt.n >= story.base and attempt.cause == "crash" for attempt in story.attempts)
        # A gang of which no rank began has no attempts.
        crashes = counted if hindered and not story.attempts else min(counted, seen)
        if crashes <= self._allowed:
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now >= self._since + _SETTLE_S
