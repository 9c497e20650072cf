# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often to save: what saves cost against what is made again after a fault, by measured figures."""

from __future__ import annotations

import math
import typing as t

# Before anything is known of a fleet, it counts as one that had no fault for so long: of a longer time the advice for
# fleets that fail every two hours is worse by more than half a percent of their time.
_PRIOR_S: t.Final = 8 * 3600.0


class Cadence(t.NamedTuple):
    """An interval between saves (seconds) and the share (0 to 1) of the time that is lost to saves and faults by it."""

    interval_s: float
    lost: float


def estimate_mtbf_s(seconds: float, faults: int) -> float:
    """Return the mean time between faults of a gang that ran for ``seconds`` with so many faults."""
    return (_PRIOR_S + seconds) / (1 + faults)


def advise(blocked_s: float, mtbf_s: float) -> Cadence:
    """Return the interval by which least is lost (Daly 2006, of first order, with the time of the save itself).

    :param blocked_s: seconds for which one save holds the steps up, above zero.
    """
    interval_s = math.sqrt(2 * mtbf_s * blocked_s + blocked_s**2)
    return Cadence(interval_s, lost_share(interval_s, blocked_s, mtbf_s))


def lost_share(interval_s: float, blocked_s: float, mtbf_s: float) -> float:
    """Return the share of the time that is lost: to saves, and to half an interval made again after each fault."""
    cycle = interval_s + blocked_s
    return min(1.0, blocked_s / cycle + cycle / 2 / mtbf_s)
