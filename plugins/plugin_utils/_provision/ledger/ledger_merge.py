# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge two copies of one ledger: the union of their lines in the order of time.

A reaper has a copy of a controller's ledger and adds lines of its own; what the controller sends later must neither
remove those nor be lost.
"""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.ledger import LedgerEvent
from ....module_utils._model.timestamps import parse_time
from .ledger_store import LedgerContent, LedgerWriter, parse_ledger, read_ledger, replace_ledger

INCOMING = "incoming"
_LIMIT = 256 * 1024 * 1024


def merge_events(local: t.Iterable[LedgerEvent], received: t.Iterable[LedgerEvent]) -> tuple[LedgerEvent, ...]:
    """Return every event of both once, by time; events of one time keep the order that they had."""
    events = {event.line(): event for event in (*local, *received)}
    return tuple(sorted(events.values(), key=lambda event: parse_time(event.at)))


def import_incoming(folder: pathlib.Path) -> list[str]:
    """Merge the ledgers in ``incoming`` of a cluster's folder into its own; return a warning for each problem.

    A file is removed when its lines are on disk here. Raises RefusedError while another process writes the ledger.
    """
    files = sorted((folder / INCOMING).glob("*.jsonl"))
    if not files:
        return []
    warnings: list[str] = []
    merged: list[pathlib.Path] = []
    with LedgerWriter(folder):
        stored = read_ledger(folder).events
        events = stored
        for path in files:
            try:
                text = _read_incoming(path)
            except (MusterError, OSError) as error:
                warnings.append(f"{path.name} was not imported: {error}")
                continue
            merged.append(path)
            warnings += text.warnings
            events = merge_events(events, text.events)
        if events != stored:
            replace_ledger(folder, events)
    for path in merged:
        path.unlink(missing_ok=True)
    return warnings


def _read_incoming(path: pathlib.Path) -> LedgerContent:
    if path.stat().st_size > _LIMIT:
        raise InputError(path.name, "is too large for a ledger")
    return parse_ledger(path.read_bytes(), path.name)
