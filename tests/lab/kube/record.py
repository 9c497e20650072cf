# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a cluster between two commands: one JSON file below the cache, gone when the cluster is."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

from . import plan

_LISTS = ("components", "images")


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """``workers``: name -> index; ``images``: those that all nodes were given; ``keep``: made by hand, so that no session of tests takes it down."""

    id: str
    subnet: str
    image: str
    workers: t.Mapping[str, int]
    components: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    torch: str = ""
    launchers: str = ""
    programs: str = ""
    complete: bool = False
    keep: bool = True
    stages: tuple[tuple[str, float], ...] = ()

    @property
    def control(self) -> plan.Machine:
        """The machine of the control plane."""
        return plan.machine(self.id, self.subnet, plan.CONTROL, 0)

    @property
    def nodes(self) -> tuple[plan.Machine, ...]:
        """The machines for work."""
        return tuple(plan.machine(self.id, self.subnet, name, index) for name, index in self.workers.items())

    def machine(self, name: str) -> plan.Machine | None:
        """Return a machine by name, None when there is none."""
        return next((item for item in (self.control, *self.nodes) if item.name == name), None)


def read(place: pathlib.Path) -> Record | None:
    """Return the record, None when there is none or it was not written by this version."""
    try:
        value = json.loads(place.read_text())
        stages = tuple((str(what), float(took)) for what, took in value.pop("stages"))
        return Record(**{**value, "stages": stages, **{key: tuple(value[key]) for key in _LISTS}})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(place: pathlib.Path, record: Record) -> None:
    """Write the record at once."""
    new = place.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(dataclasses.asdict(record), indent=1))
    new.rename(place)
