# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that is brought up or removed, and ansible-playbook or a machine that is gone in the middle of it.

The same command again comes to the same end. With MUSTER_TEST_ALL=1 ansible-playbook is killed at each task boundary
and 40 power cuts are made; else at a few boundaries from the first to the last, and a few cuts. MUSTER_LAB_KILLS and
MUSTER_LAB_CUTS say how many. Boundaries between which nothing acted are one (see ``callback.boundaries``).
MUSTER_LAB_PART, such as 2/3, takes the second third of the boundaries. A machine of the lab that loses its power keeps
what its kernel had not written yet.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.k3s.callback import boundaries
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import (
    State,
    compare,
    describe_installed,
    find_differences,
    open_operator,
)
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

ALL = os.environ.get("MUSTER_TEST_ALL") == "1"
KILLS = int(os.environ.get("MUSTER_LAB_KILLS") or (0 if ALL else 3))
CUTS = int(os.environ.get("MUSTER_LAB_CUTS") or (40 if ALL else 2))
SEED = int(os.environ.get("MUSTER_LAB_SEED") or 21)
PART, _, PARTS = (os.environ.get("MUSTER_LAB_PART") or "1/1").partition("/")
_CALLBACKS = pathlib.Path(boundaries.__file__).parent
_LIMIT_S = 300
_DARK_S = 30
# A play that waits for a machine without power need not wait for as long as a user would let it.
_DOOMED = {"k3s_wait_s": 40, "muster_nodes_ready_s": 40}


class World:
    """The machines, what they were, what they are with a cluster on them, and the tasks on the way there and back."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.before = {node.name: operator.lab.state(node.name) for node in operator.lab.nodes}
        self.tasks: dict[str, list[boundaries.Task]] = {}
        self.seconds: dict[str, float] = {}
        self.up = self._measure("cluster")
        self._measure("cluster_absent")
        assert find_differences(operator, self.before) == []

    def _measure(self, playbook: str) -> State:
        log = self.operator.folder / f"{playbook}.tasks"
        result = self.start(playbook, log).wait(_LIMIT_S)
        assert result.code == 0, result.output
        self.tasks[playbook], self.seconds[playbook] = boundaries.read_tasks(log), result.seconds
        return describe_installed(self.operator.lab)

    def start(self, playbook: str, log: pathlib.Path, kill_at: int = 0, **values: t.Any) -> t.Any:
        """Start a playbook that notes its tasks, and that is killed before one of them."""
        environment = {
            "ANSIBLE_CALLBACK_PLUGINS": str(_CALLBACKS),
            boundaries.LOG: str(log),
            boundaries.KILL_AT: str(kill_at),
        }
        return self.operator.start(playbook, environment=environment, **values)

    def find_problems(self, changed_again: int) -> list[str]:
        """Return what is other than after a bring-up that nothing has interrupted."""
        problems = compare(self.up, describe_installed(self.operator.lab))
        ready = {
            node["metadata"]["name"]: condition["status"]
            for node in self.operator.items("nodes")
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready"
        }
        if ready != {SERVER: "True", AGENT: "True"}:
            problems.append(f"nodes: {ready}")
        if changed_again:
            problems.append(f"the command after that changed {changed_again} more")
        return problems

    def bring_up(self) -> list[str]:
        """Run the command for a cluster again, and once more; return what is wrong afterwards."""
        result = self.operator.play("cluster")
        if result.code != 0:
            return [f"cluster ended with {result.code}: {result.errors}\n{result.output[-1500:]}"]
        again = self.operator.play("cluster")
        return self.find_problems(again.changed if again.code == 0 else -1)

    def remove(self) -> list[str]:
        """Run the command that removes it; return what is wrong afterwards."""
        result = self.operator.play("cluster_absent")
        if result.code != 0:
            return [f"cluster_absent ended with {result.code}: {result.errors}\n{result.output[-1500:]}"]
        left = find_differences(self.operator, self.before)
        return [*left, *(f"the ledger has a token of {name} as open" for name in open_tokens(self.operator))]


def open_tokens(operator: Operator) -> list[str]:
    """Return the agents for which the ledger has more tokens that were made than tokens that are over."""
    lines = operator.ledger() if (operator.state / "ledger.jsonl").exists() else []
    count = {name: 0 for _event, _resource, name in lines}
    for event, _resource, name in lines:
        count[name] += (event == "intent") - (event == "verified")
    return [name for name, left in count.items() if left]


def choose(places: t.Sequence[int], wanted: int) -> list[int]:
    """Return which of the boundaries are taken: all for 0, else some from the first to the last."""
    total = len(places)
    if not wanted or wanted >= total:
        return list(places)
    if wanted == 1:
        return [places[-1]]
    return [places[index] for index in sorted({round(n * (total - 1) / (wanted - 1)) for n in range(wanted)})]


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    """Two bare machines on which a cluster was up once; the module fails when anything of them is left at its end."""
    with open_operator() as operator:
        yield World(operator)


def test_killed_before_any_task_the_same_command_comes_to_the_same_end(world: World) -> None:
    places = {name: boundaries.distinct(tasks) for name, tasks in world.tasks.items()}
    ways = {name: choose(found, KILLS)[int(PART) - 1 :: int(PARTS)] for name, found in places.items()}
    problems: list[str] = []
    done = 0
    for index in range(max(map(len, ways.values()))):
        for playbook, finish in (("cluster", world.bring_up), ("cluster_absent", world.remove)):
            if index < len(ways[playbook]):
                at = ways[playbook][index]
                killed = world.start(playbook, pathlib.Path(os.devnull), at).wait(_LIMIT_S)
                assert killed.code == -signal.SIGKILL, f"{playbook} was not killed before task {at}: {killed.output}"
                done += 1
                where = f"{playbook} killed before task {at} ({world.tasks[playbook][at - 1].name})"
                print(where)
            else:
                where = f"{playbook} in round {index + 1}"
            problems += [f"{where}: {problem}" for problem in finish()]
    of = {
        name: f"{len(way)} of {len(places[name])} places of {len(world.tasks[name])} task boundaries"
        for name, way in ways.items()
    }
    NOTES.append(f"killed {done} times, part {PART} of {PARTS} ({of}): {len(problems)} problems")
    assert problems == []


def test_power_that_is_cut_at_any_moment_leaves_nothing_that_the_same_command_does_not_mend(world: World) -> None:
    moments, problems, converged, made = random.Random(SEED), [], 0, 0
    while made < CUTS:
        name, after = moments.choice([SERVER, AGENT]), moments.uniform(0.5, world.seconds["cluster"])
        play = world.start("cluster", pathlib.Path(os.devnull), **_DOOMED)
        until(lambda play=play: play.process.poll() is not None, max(0.0, after - (time.monotonic() - play.began)))
        if play.process.poll() is not None:
            # It was quicker than the ones before, and is no bring-up that was cut.
            world.seconds["cluster"] = play.wait(_LIMIT_S).seconds
            assert world.remove() == []
            continue
        world.operator.lab.power_off(name)
        made += 1
        # One that waits for the machine has it back.
        until(lambda play=play: play.process.poll() is not None, _DARK_S)
        world.operator.lab.plug_in(name)
        ended = play.wait(_LIMIT_S)
        where = f"cut {made}: {name} after {after:.1f} s (the play ended with {ended.code} after {ended.seconds:.1f})"
        found = [f"{where}: {problem}" for problem in [*world.bring_up(), *world.remove()]]
        converged += not found
        problems += found
        print(f"{where}: {len(found)} problems, {time.monotonic() - play.began:.0f} s", flush=True)
    NOTES.append(f"power cut at {CUTS} random moments (seed {SEED}): {converged} of {CUTS} converged")
    assert problems == []
