# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a run stood still between its steps."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ....module_utils._model import stall
from .attempts import AttemptView

Span = tuple[float, float]


def find_stalls(attempts: t.Sequence[AttemptView]) -> tuple[Span, ...]:
    """Return (from, until) of each stall (Unix seconds): between steps, and from the last one to the attempt end."""
    found: list[Span] = []
    for attempt in attempts:
        steps = attempt.segment.steps if attempt.segment else ()
        pace = stall.measure_pace((step.at, step.step) for step in steps if step.at is not None)
        # Of a run that is over, the longest pause may be the stall itself.
        limit = stall.limit_s(dataclasses.replace(pace, longest_s=0.0)) if pace else None
        if limit is None:
            continue
        # Steps of which the times are not known were made in the gap that they lie in.
        times = [step.at for step in steps] + ([attempt.end] if attempt.end is not None else [])
        found += [(a, b) for a, b in itertools.pairwise(times) if a is not None and b is not None and b - a > limit]
    return tuple(found)
