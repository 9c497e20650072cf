# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a notice: at once where there is one, again and again where there is none, no longer than asked for."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.errors import UnreachableError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import preemption_info


class Machine:
    """A machine that gets its notice at a question of its own."""

    def __init__(self, name: str, at: int = 0, gone: bool = False) -> None:
        self.name, self.at, self.gone = name, at, gone
        self.asked = 0

    def call(self, op: str) -> dict[str, t.Any]:
        assert op == "notice"
        self.asked += 1
        if self.gone:
            raise UnreachableError(self.name, "no answer")
        return {"notice": "it goes" if self.at and self.asked >= self.at else None}


class Clock:
    """A clock that moves only while something sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def find(machines: t.Sequence[Machine], wait_s: float, named: t.Sequence[str] = ()) -> tuple[dict[str, t.Any], Clock]:
    clock = Clock()
    given: t.Any = machines
    found = preemption_info.find_notices(given, named, wait_s, 5, clock.sleep, lambda: clock.now, lambda: 1e9)
    return found, clock


def test_a_notice_ends_the_wait() -> None:
    machines = [Machine("a"), Machine("b", at=3)]
    found, clock = find(machines, 60)
    at = "2001-09-09T01:46:40.000Z"
    assert found == {"changed": False, "notices": {"b": "it goes"}, "noticed_at": at, "unanswered": []}
    assert clock.sleeps == [5, 5] and machines[0].asked == 3


def test_without_one_the_wait_ends_by_itself_and_the_silent_are_named() -> None:
    found, clock = find([Machine("a"), Machine("b", gone=True)], 12)
    assert (found["notices"], found["unanswered"]) == ({}, ["b"])
    assert clock.sleeps == [5, 5, 2]


def test_once_means_one_question() -> None:
    machine = Machine("a")
    assert find([machine], 0)[1].sleeps == [] and machine.asked == 1


def test_a_named_machine_is_not_waited_for() -> None:
    found, clock = find([Machine("a"), Machine("b", at=1)], 60, ["c", "b"])
    assert found["notices"] == {"b": "named by the user", "c": "named by the user"} and clock.sleeps == []


def test_without_machines_only_the_named_are_told() -> None:
    assert find([], 0, ["c"])[0]["notices"] == {"c": "named by the user"}
