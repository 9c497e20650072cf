# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Earlier verdicts (fabric.json) and measurements (fabric_history.jsonl) of a cluster, in its state directory."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import typing as t

from ....module_utils._model.verdict import Verdict, exit_code, worst_outcome
from ....module_utils._node import files
from ..._fabric.verdict import drift
from ..._fabric.verdict.drift import IslandMeasurement
from ..training_job import fabric_file
from ..training_job.fabric_file import FABRIC

_FILE = "fabric_history.jsonl"


@dataclasses.dataclass(frozen=True, slots=True)
class StoredVerdict:
    """One entry of fabric.json: the nodes of its island, and the entry as it was read."""

    nodes: tuple[str, ...]
    document: t.Mapping[str, object]


def read_verdicts(folder: pathlib.Path, cluster_id: str = "") -> list[StoredVerdict]:
    """Return the entries of fabric.json; empty when the file is absent or damaged.

    :param cluster_id: those of another cluster of the same name are left out.
    """
    return [
        StoredVerdict(tuple(str(name) for name in entry["nodes"]), entry)
        for entry in fabric_file.read_verdicts(folder, cluster_id)
        if isinstance(entry, dict) and isinstance(entry.get("nodes"), list)
    ]


def read_recent(
    folder: pathlib.Path, max_age_s: float, allow_unproven: bool, cluster_id: str = ""
) -> list[StoredVerdict]:
    """Return the entries of fabric.json when it is not older than ``max_age_s`` and all of them let jobs run."""
    standing = ("pass", "warn", "unproven") if allow_unproven else ("pass", "warn")
    place = folder / FABRIC
    if max_age_s <= 0 or not place.exists() or time.time() - place.stat().st_mtime > max_age_s:
        return []
    entries = read_verdicts(folder, cluster_id)
    return entries if all(entry.document.get("outcome") in standing for entry in entries) else []


def read_measurements(folder: pathlib.Path) -> list[IslandMeasurement]:
    """Return all measurements, the oldest first; lines that are not measurements are left out."""
    try:
        text = (folder / _FILE).read_text(errors="replace")
    except OSError:
        return []
    return drift.read_measurements(files.parse_json_lines(text))


def compare_verdict(
    verdict: Verdict, now: IslandMeasurement, before: t.Sequence[IslandMeasurement]
) -> tuple[Verdict, list[str]]:
    """Return the verdict with the causes of its history added, and the changes in words.

    An island that became slower than its own history gets a warning, although the gate may still pass.
    """
    result = drift.compare_with_history(now, before)
    if not result.causes:
        return verdict, list(result.changes)
    outcome = worst_outcome([verdict.outcome, "warn"])
    changed = dataclasses.replace(
        verdict,
        outcome=outcome,
        exit_code=exit_code(outcome),
        causes=(*verdict.causes, *result.causes),
        reasons=(*verdict.reasons, *(f"drift: {change}" for change in result.changes)),
    )
    return changed, list(result.changes)


def append_measurements(
    folder: pathlib.Path, new: t.Sequence[IslandMeasurement], before: t.Sequence[IslandMeasurement]
) -> None:
    """Append measurements; a file that exceeds its limit is rewritten with its newest half."""
    lines = list(new)
    if len(before) + len(new) > drift.MAX_LINES:
        lines = [*before, *new][-drift.MAX_LINES // 2 :]
        (folder / _FILE).unlink(missing_ok=True)
    for line in lines:
        files.append_json(folder / _FILE, line.to_dict())
