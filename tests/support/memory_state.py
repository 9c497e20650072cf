# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A store of state in memory, as strict about versions as the real ones, that can be away."""

from __future__ import annotations

import dataclasses
import itertools
import threading

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateConflictError, StoredItem


@dataclasses.dataclass
class MemoryState:
    """Counts writes; with ``away`` nothing answers; ``ages`` are the seconds since an item was written."""

    title: str = "bucket state at http://store"
    items: dict[str, tuple[bytes, str]] = dataclasses.field(default_factory=dict)
    ages: dict[str, float] = dataclasses.field(default_factory=dict)
    writes: int = 0
    away: bool = False

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def _answer(self) -> None:
        if self.away:
            raise TransportError(f"{self.title} does not answer")

    def read(self, name: str) -> StoredItem | None:
        self._answer()
        found = self.items.get(name)
        return StoredItem(*found, self.ages.get(name, 0.0)) if found else None

    def write(self, name: str, data: bytes, version: str | None) -> str:
        self._answer()
        with self._lock:
            present = self.items.get(name)
            if (present[1] if present else None) != version:
                raise StateConflictError(f"{name} was written by another controller")
            self.writes += 1
            self.items[name] = (data, str(next(self._numbers)))
            self.ages.pop(name, None)
            return self.items[name][1]

    def delete(self, name: str, version: str) -> None:
        self._answer()
        if name in self.items and self.items[name][1] == version:
            del self.items[name]
