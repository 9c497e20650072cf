# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node of an island is to blame: by halving an island that falls short, or by the rates of its pairs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import typing as t

from ....module_utils._model.expectation import GATE_PASS
from .plan import Group, Round


@dataclasses.dataclass(frozen=True, slots=True)
class Suspects:
    """The result of a search: bad nodes, and groups that are good alone but not together (a bad path, not a bad node).

    ``undecided``: at least one of these nodes is bad, but there was no good partner to find out which.
    """

    bad: Group = ()
    between: tuple[tuple[Group, Group], ...] = ()
    undecided: tuple[Group, ...] = ()


def _split_half(group: Group) -> tuple[Group, Group]:
    middle = math.ceil(len(group) / 2)
    return group[:middle], group[middle:]


def _plan_tests(group: Group, partners: t.Iterator[str] | None) -> dict[Group, Group]:
    """Return part -> the nodes whose test decides about it, for a suspect group.

    Parts are halves; a single node needs a partner that is known to be good. Without one, three nodes are tested in
    pairs: the part that a pair decides about is then the node that it leaves out.
    """
    if len(group) == 3 and partners is None:
        return {tuple(sorted(set(group) - set(pair))): pair for pair in itertools.combinations(group, 2)}
    tests = {half: half for half in _split_half(group) if len(half) > 1}
    if partners is not None:
        tests.update({half: (half[0], next(partners)) for half in _split_half(group) if len(half) == 1})
    return tests


def _judge_parts(tests: t.Mapping[Group, Group], passed: t.Mapping[Group, bool]) -> tuple[list[Group], list[Group]]:
    """Return the parts that are (bad, good)."""
    if len(tests) == 3:
        left_out = [part for part, test in tests.items() if passed[test]]
        nodes = {name for part in tests for name in part}
        good: list[Group] = [
            (name,) for name in sorted(nodes) if any(passed[test] and name in test for test in tests.values())
        ]
        return (left_out if len(left_out) == 1 else []), good
    verdicts = {part: passed[test] for part, test in tests.items()}
    return [part for part, good in verdicts.items() if not good], [part for part, good in verdicts.items() if good]


def _pack_rounds(tests: t.Iterable[Group]) -> list[Round]:
    """Put tests that share no node into one round."""
    rounds: list[list[Group]] = []
    for test in tests:
        free = next((groups for groups in rounds if not any(set(test) & set(other) for other in groups)), None)
        if free is None:
            rounds.append([test])
        else:
            free.append(test)
    return [tuple(groups) for groups in rounds]


class _Search:
    """What a search by halving knows: nodes known to be good and bad, and the parts that are still suspect."""

    def __init__(self, group: Group) -> None:
        self.good: list[str] = []
        self.bad: list[str] = []
        self.between: list[tuple[Group, Group]] = []
        # Without a third node it cannot be decided which of two is bad.
        self.suspects: list[Group] = [group] if len(group) > 2 else []
        self.undecided: list[Group] = [] if self.suspects else [group]

    def plan_step(self) -> dict[Group, dict[Group, Group]]:
        """Return the tests of the next step: suspect -> part -> the nodes whose test decides about it."""
        partners = itertools.cycle(self.good) if self.good else None
        return {suspect: _plan_tests(suspect, partners) for suspect in self.suspects}

    def take_answers(self, step: t.Mapping[Group, t.Mapping[Group, Group]], answers: t.Mapping[Group, bool]) -> None:
        """Take in which tests passed; a missing answer is a failure."""
        following: list[Group] = []
        for suspect, parts in step.items():
            failed, healthy = _judge_parts(parts, {test: bool(answers.get(test)) for test in parts.values()})
            self.good += [name for part in healthy for name in part]
            following += failed
            if not failed and healthy:
                self.between.append(_split_half(suspect))
            elif not failed:
                self.undecided.append(suspect)
        self._sort_out(following)

    def _sort_out(self, parts: t.Iterable[Group]) -> None:
        """Decide what becomes of the parts that failed: one node is bad, two need a good partner, more are halved."""
        self.suspects = []
        for part in parts:
            if len(part) == 1:
                self.bad.append(part[0])
            elif len(part) == 2 and not self.good:
                self.undecided.append(part)
            else:
                self.suspects.append(part)


def bisect_nodes(names: t.Iterable[str]) -> t.Generator[list[Round], t.Mapping[Group, bool], Suspects]:
    """Find the bad node of an island that falls short as a whole, in at most log2(N) steps.

    Yields the tests of one step (rounds of groups that may run at once) and expects for each group whether it passed; a
    missing answer counts as a failure. Returns the suspects.
    """
    search = _Search(tuple(sorted(names)))
    while search.suspects:
        step = search.plan_step()
        answers = yield _pack_rounds(test for parts in step.values() for test in parts.values())
        search.take_answers(step, answers)
    return Suspects(tuple(sorted(search.bad)), tuple(search.between), tuple(search.undecided))


def find_suspects_of_pairs(
    busbw: t.Mapping[tuple[str, str], float | None], expected: float | None = None, gate: float = GATE_PASS
) -> Suspects:
    """Find the nodes to blame for slow pairs (GB/s; None for a pair that failed).

    A pair is slow below ``gate`` of the expected rate; without one, of the median of the faster half. A node is
    bad when all its pairs are slow; a slow pair of two good nodes is a bad path between them.
    """
    least = gate * (expected or _rate_of_faster_half(busbw.values()))
    slow = {pair: value is None or value < least for pair, value in busbw.items()}
    bad: list[str] = []
    while (culprit := _find_slow_node(slow)) is not None:
        bad.append(culprit)
        # Its pairs say nothing of the others.
        slow = {pair: is_slow for pair, is_slow in slow.items() if culprit not in pair}
    between = tuple(((a,), (b,)) for (a, b), is_slow in sorted(slow.items()) if is_slow)
    return Suspects(tuple(sorted(bad)), between)


def _rate_of_faster_half(rates: t.Iterable[float | None]) -> float:
    """Return the median of the faster half of what was measured, 0 without any."""
    measured = sorted(rate for rate in rates if rate is not None)
    return statistics.median(measured[len(measured) // 2 :]) if measured else 0.0


def _find_slow_node(slow: t.Mapping[tuple[str, str], bool]) -> str | None:
    """Return the node with the most slow pairs of those that have two or more pairs, all of them slow."""
    pairs_of: dict[str, list[bool]] = {}
    for pair, is_slow in slow.items():
        for name in pair:
            pairs_of.setdefault(name, []).append(is_slow)
    guilty = sorted(name for name, pairs in pairs_of.items() if len(pairs) > 1 and all(pairs))
    return max(guilty, key=lambda name: len(pairs_of[name]), default=None)
