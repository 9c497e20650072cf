# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times that a cluster wrote, by this controller's clock, and since when a run has been admitted."""

from __future__ import annotations

import time
import typing as t

from .....module_utils._model.run_history import RunHistory
from ...._kube.api.kinds import parse_time

# The server's clock tells whole seconds, and its answer takes a moment.
_CLOSE_S = 5.0
# Where clocks cannot be compared, what is less than this ago is seen as it happens: they differ by some of it.
_LATE_S = 60.0


def local_time(stamp: t.Any, server: float | None) -> float:
    """Return a time stamp of the cluster as a time by the controller's clock; now, where it is missing.

    :param server: the time by the API server's clock, None where it is not known: then what is recent is now.
    """
    now = time.time()
    at = parse_time(stamp)
    if at is None:
        return now
    if server is not None:
        return min(now, at + now - server)
    return at if at < now - _LATE_S else now


def cluster_time(now: float, server: float | None) -> float:
    """Return the controller's time ``now`` by the cluster's clock: its pods date the steps after a fault.

    :param server: the time by the API server's clock, None where it is not known.
    """
    return now if server is None or abs(server - now) < _CLOSE_S else server


def cluster_date(stamp: t.Any, now: float, server: float | None) -> float:
    """Return a time stamp of the cluster by the cluster's own clock, by which its nodes date what ranks do.

    :param now: the controller's time, for a stamp that is missing. :param server: the API server's, None if unknown.
    """
    at = parse_time(stamp)
    # Whole seconds: what a loss ended had begun before the end of its second.
    return cluster_time(now, server) if at is None else at + 0.999


def admission_time(story: RunHistory, admitted: float) -> float | None:
    """Return since when a run has its place, None while it waits; ``admitted``: when this start first had one."""
    # The story is of all starts of the run.
    back = max((at for at in story.set_back if at > admitted), default=None)
    if back is None:
        return admitted
    return min((item.started_at for item in story.attempts if item.started_at > back), default=None)
