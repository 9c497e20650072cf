# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step at which each node of a gang began after a restart. Pure rules on the steps that its ranks report.

Ranks that train together are at one step. A node without the checkpoint that others loaded begins before them, and the
gang stands as soon as the others are done. What ranks say of the checkpoint that they loaded tells it before any step,
also of a program that prints its steps on one rank alone.
"""

from __future__ import annotations

import collections
import itertools
import typing as t

from .quantity import parse_finite

Step = tuple[float, int]
Line = t.Mapping[str, t.Any]
# Of each node: lines that may be read before the event that their ranks have started.
_RECENT_LINES = 256
EVENT = "ranks_began"


class UnevenStart(t.NamedTuple):
    """The first steps by node of those that began furthest, and of those that are behind them."""

    ahead: dict[str, int]
    behind: dict[str, int]


def find_uneven(now: t.Mapping[str, int], before: t.Iterable[t.Mapping[str, int]], spacing: int) -> UnevenStart | None:
    """Return how the nodes of a gang began at different steps, None where they did not or it is not known.

    :param now: the first step of each node, of those that have reported one.
    :param before: the same of earlier starts: only of nodes that began at one step then it is known that they count
        the same steps.
    :param spacing: the usual distance of two reported steps.
    """
    furthest = max(now.values(), default=0)
    tolerance = 2 * max(1, spacing)
    behind = {node: step for node, step in now.items() if furthest - step > tolerance}
    ahead = {node: step for node, step in now.items() if furthest - step <= tolerance}
    for known in before:
        together = [known[node] for node in (*list(ahead)[:1], *behind) if node in known]
        if behind and len(together) == 1 + len(behind) and max(together) - min(together) <= tolerance:
            return UnevenStart(ahead, behind)
    return None


def spacing_of(steps: t.Iterable[Step]) -> int:
    """Return the largest distance between two steps that a node reported one after the other."""
    gaps = (later[1] - earlier[1] for earlier, later in itertools.pairwise(sorted(steps)))
    return max((gap for gap in gaps if gap > 0), default=1)


class Resumed(t.NamedTuple):
    """A line by which a rank says from which step it resumed. ``rank`` is None where the line does not say it."""

    at: float
    rank: int | None
    step: int
    printed: bool


def find_uneven_resumes(said: t.Mapping[str, t.Iterable[Resumed]]) -> tuple[tuple[str, Resumed], ...]:
    """Return (node, line) of the ranks that resumed furthest and least far, nothing where all that said it agree.

    Of a rank its first line counts, of a node whose lines name no rank the first of all. What is printed and what is
    reported may count differently: each is compared with its own kind.

    :param said: by node what its ranks said in one attempt, oldest first.
    """
    firsts: dict[tuple[bool, str, int | None], tuple[str, Resumed]] = {}
    for node, lines in said.items():
        for line in lines:
            firsts.setdefault((line.printed, node, line.rank), (node, line))
    for printed in (False, True):
        found = [item for item in firsts.values() if item[1].printed is printed]
        found.sort(key=lambda item: -item[1].step)
        if found and found[0][1].step != found[-1][1].step:
            return found[0], found[-1]
    return ()


class BegunSteps:
    """Takes in what nodes report, each by its own clock, and says where they began."""

    def __init__(self) -> None:
        self._starts: dict[str, dict[str, float]] = {}
        # Of each gang by node: when each of its ranks started last.
        self._ranks: dict[str, dict[str, dict[t.Any, float]]] = {}
        self._resumed: dict[str, collections.deque[Resumed]] = {}
        self._steps: dict[str, collections.deque[Step]] = {}
        self._begun: dict[str, dict[str, int]] = {}
        self._seen: dict[tuple[str, str], Line] = {}
        self._spacing = 1

    def event(self, line: Line) -> None:
        """Take in a line of the events."""
        node, gang, kind = str(line.get("node")), str(line.get("gang")), line.get("kind")
        if kind == "worker_started" and isinstance(line.get("at"), int | float):
            self._starts.setdefault(node, {}).setdefault(gang, float(line["at"]))
            self._ranks.setdefault(gang, {}).setdefault(node, {})[line.get("rank")] = float(line["at"])
        elif kind == EVENT and isinstance(line.get("step"), int):
            self._begun.setdefault(gang, {})[node] = line["step"]
        elif kind in ("checkpoints_seen", "pod_ready"):
            # A pod has seen it before it knows its gang.
            self._seen[str(line.get("gang") or ""), node] = line

    def step(self, node: str, line: Line) -> None:
        """Take in a line of a node's metrics."""
        at, step = line.get("at"), line.get("step")
        if isinstance(at, int | float) and isinstance(step, int):
            self._steps.setdefault(node, collections.deque(maxlen=_RECENT_LINES)).append((float(at), step))
        self.resume(node, line)

    def resume(self, node: str, line: Line) -> None:
        """Take in from which step a rank of a node says that it resumed; other lines say nothing."""
        at, step, rank = line.get("at"), line.get("resumed_from_step"), line.get("rank")
        if isinstance(at, int | float) and isinstance(step, int):
            said = Resumed(float(at), rank if isinstance(rank, int) else None, step, bool(line.get("printed")))
            self._resumed.setdefault(node, collections.deque(maxlen=_RECENT_LINES)).append(said)

    def take_news(self) -> list[Line]:
        """Return an event for each node whose first step of its newest start has become known."""
        news: list[Line] = []
        for node, starts in self._starts.items():
            gang, began = max(starts.items(), key=lambda item: item[1])
            steps = self._steps.get(node, ())
            first = next((step for at, step in steps if at >= began), None)
            if first is not None and node not in self._begun.get(gang, {}):
                self._spacing = max(self._spacing, spacing_of(item for item in steps if item[0] < began))
                self._begun.setdefault(gang, {})[node] = first
                news.append({"kind": EVENT, "node": node, "gang": gang, "step": first})
        return news

    def find_problem(self, gang: str) -> tuple[str, str] | None:
        """Return what is wrong with the start of a gang, one line, and a node that began too early; None if nothing."""
        resumed = self._find_uneven_resumes(gang)
        if resumed:
            (ahead, first), (behind, last) = resumed
            names = [f"rank {item.rank} on {node}" if item.rank is not None else node for node, item in resumed]
            text = f"{names[0]} resumed from step {first.step}, {names[1]} from step {last.step}"
            return text + _describe_seen(ahead, behind, self._seen_by(gang, {ahead, behind})), behind
        before = [begun for name, begun in self._begun.items() if name != gang]
        uneven = find_uneven(self._begun.get(gang, {}), before, self._spacing)
        if uneven is None:
            return None
        return describe_uneven(uneven, self._seen_by(gang, {*uneven.ahead, *uneven.behind})), next(iter(uneven.behind))

    def _find_uneven_resumes(self, gang: str) -> tuple[tuple[str, Resumed], ...]:
        began = {node: min(ranks.values()) for node, ranks in self._ranks.get(gang, {}).items()}
        return find_uneven_resumes(
            {node: [item for item in self._resumed.get(node, ()) if item.at >= at] for node, at in began.items()}
        )

    def _seen_by(self, gang: str, nodes: t.Collection[str]) -> dict[str, Line]:
        return {node: self._seen.get((gang, node)) or self._seen.get(("", node)) or {} for node in nodes}


def replay(told: t.Mapping[str, tuple[t.Iterable[Line], t.Iterable[Line]]]) -> BegunSteps:
    """Return what nodes have reported until now, by all that they have kept: (events, metrics) by node."""
    found = BegunSteps()
    for node, (events, metrics) in told.items():
        lines = [(line, True) for line in events] + [(line, False) for line in metrics]
        # In the order of the node's own clock; of lines at one time, the start of a rank comes first.
        for line, is_event in sorted(lines, key=lambda item: parse_finite(item[0].get("at")) or 0.0):
            if is_event:
                found.event(line)
            else:
                found.step(node, line)
            found.take_news()
    return found


def describe_uneven(uneven: UnevenStart, seen: t.Mapping[str, Line]) -> str:
    """Return one line that names the steps, and what checkpoint each node had when it began.

    :param seen: of nodes where that is known: ``{detail: name or null, folder}``.
    """
    ahead, behind = next(iter(uneven.ahead)), next(iter(uneven.behind))
    more = f" and {len(uneven.behind) - 1} more" if len(uneven.behind) > 1 else ""
    text = f"{ahead} began at step {uneven.ahead[ahead]}, {behind}{more} at step {uneven.behind[behind]}"
    return text + _describe_seen(ahead, behind, seen)


def _describe_seen(ahead: str, behind: str, seen: t.Mapping[str, Line]) -> str:
    """Return the end of the line: what checkpoint two nodes had, empty for one node and where it is not known."""
    mine, theirs = seen.get(behind) or {}, seen.get(ahead) or {}
    if not mine or not theirs or ahead == behind:
        return ""
    if not mine.get("detail") and not theirs.get("detail"):
        return f": neither has a checkpoint in {mine.get('folder')}, the program saves elsewhere"
    has = f"has {mine['detail']}" if mine.get("detail") else f"has no checkpoint in {mine.get('folder')}"
    return f": {behind} {has}, {ahead} has {theirs.get('detail') or 'none'}"
