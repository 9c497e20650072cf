# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run moves, by the files that a controller keeps of it; the rule is ``_model/stall.py``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import os
import pathlib

from ....module_utils._model import stall
from ....module_utils._model.run_history import fold
from ....module_utils._node import files

_TAIL = 64 << 10


def read_movement(folder: pathlib.Path, now: float) -> tuple[stall.Movement, str]:
    """Return whether the newest attempt of a run moves, and for how long it has made no step, in words."""
    events = files.parse_json_lines(files.read_text(folder / "events.jsonl"))
    history = fold(events, files.parse_json_lines(read_end(folder / "metrics.jsonl")))
    if not history.attempts:
        return "moving", ""
    newest = history.attempts[-1]
    since = max(0.0, now - (newest.last_step_at or newest.started_at))
    return history.judge_movement(since), stall.describe(since, history.pace_meter.read())


def read_end(place: pathlib.Path) -> str:
    """Return the last lines of a file, empty where it cannot be read."""
    try:
        with open(place, "rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _TAIL))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""
