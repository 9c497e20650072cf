# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of measurements in the state home, and the stored verdicts: what a new verdict is compared with.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model.verdict import Verdict, exit_code, worst_outcome
from ....module_utils._node import files
from ..._fabric.verdict import drift
from ..._hosts import log_follow

Dict = dict[str, t.Any]
_FILE = "fabric_history.jsonl"


def stored(folder: pathlib.Path) -> list[Dict]:
    """Return the islands of fabric.json; none when it is absent or damaged."""
    document = files.read_json(folder / "fabric.json")
    islands = document.get("islands") if isinstance(document, dict) else None
    if not isinstance(islands, list):
        return []
    return [item for item in islands if isinstance(item, dict) and isinstance(item.get("nodes"), list)]


def lines(folder: pathlib.Path) -> list[Dict]:
    """Return all measurements, the oldest first; torn and foreign lines are passed over."""
    try:
        text = (folder / _FILE).read_text(errors="replace")
    except OSError:
        return []
    return list(log_follow.parse_json_lines(text))


def compared(verdict: Verdict, now: Dict, before: t.Sequence[Dict]) -> tuple[Verdict, list[str]]:
    """Return the verdict with what its history adds, and the changes in words.

    What became slower than its own history is a warning, although the gate may still hold.
    """
    found = drift.drift(now, before)
    if not found.causes:
        return verdict, list(found.changes)
    outcome = worst_outcome([verdict.outcome, "warn"])
    reasons = tuple(f"drift: {change}" for change in found.changes)
    causes = (*verdict.causes, *found.causes)
    values: Dict = {"outcome": outcome, "exit_code": exit_code(outcome), "causes": causes}
    return dataclasses.replace(verdict, **values, reasons=(*verdict.reasons, *reasons)), list(found.changes)


def keep(folder: pathlib.Path, new: t.Sequence[Dict], before: t.Sequence[Dict]) -> None:
    """Append measurements; a file that has grown beyond its limit keeps its newest half."""
    if len(before) + len(new) > drift.MAX_LINES:
        kept = [*before, *new][-drift.MAX_LINES // 2 :]
        (folder / _FILE).unlink(missing_ok=True)
    else:
        kept = list(new)
    for line in kept:
        files.append_json(folder / _FILE, line)
