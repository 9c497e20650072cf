# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renting with the state home in a store: what holds for a namespace holds for a bucket, too.

A controller keeps nothing: ``leave`` makes the next one begin with an empty disk, as a job of AWX does.
"""

from __future__ import annotations

import pathlib
import shutil
import typing as t

from ansible_collections.muster.training.tests.e2e.rent_world import SIGNALS, Point, RentWorld, interrupt
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod

Case = tuple[str, str, int, str, str]


class StoredWorld(RentWorld):
    """Controllers that have only the store in common; ``store`` is what muster_state says of it."""

    def __init__(self, root: pathlib.Path, store: dict[str, t.Any]) -> None:
        super().__init__(root, lambda clock: FakeRunpod(clock, boot_s=60.0), "runpod")
        self.store_setting = store

    def setting(self, **changes: t.Any) -> dict[str, t.Any]:
        """Return muster_state, with changes."""
        return {"path": str(self.root / "state"), **self.store_setting, **changes}

    def values(self, **extra: t.Any) -> dict[str, t.Any]:
        return super().values(**{"muster_state": self.setting(), **extra})

    def leave(self) -> None:
        shutil.rmtree(self.root / "state", ignore_errors=True)


def check_vanished(world: StoredWorld, case: Case) -> None:
    """Let a controller vanish at a point of ``case`` (as in SHORT); the next one leaves nothing."""
    playbook, operation, nth, side, name = case
    if playbook == "teardown":
        assert world.play("rent").code == 0
    interrupt(world, playbook, Point(operation, nth, side == "after"), SIGNALS[name], rented_nodes_lease_s=None)
    world.leave()
    world.pass_time(3 * 3600 if playbook == "rent" else 0)
    done = world.play("reap" if playbook == "rent" else "teardown")
    assert done.code == 0, done.output
    assert world.alive == 0 and set(world.states) <= {"verified"}


def check_second_controller(world: StoredWorld) -> None:
    """Let a second controller rent while the first one does: it is refused with the first one's name."""
    seen: list[t.Any] = []

    def rent_elsewhere() -> None:
        seen.append(world.play("rent", muster_state=world.setting(path=str(world.root / "other"))))

    world.door.point = Point("create", 1, False, rent_elsewhere)
    assert world.play("rent").code == 0
    assert seen[0].code != 0 and "is in use by process" in seen[0].output, seen[0].output
    assert world.alive == 2
    assert world.play("teardown").code == 0 and world.alive == 0
