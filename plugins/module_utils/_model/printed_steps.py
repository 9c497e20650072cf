# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the lines that the processes of a run print are its steps. Pure rules on the metrics read from them.

All ranks may print, each its own loss, or one alone, which need not be rank 0. The figures of an attempt are those of
one process: of rank 0 where that prints, else of the lowest rank that does. Bars are drawn several times for a step.
A counter may begin anew in each epoch: then its steps are counted on, and none of them is shown as a step of the run.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .metric_presets import PRESETS
from .quantity import parse_finite

Line = dict[str, t.Any]
# For so long rank 0 may be read later than the others, in seconds.
_WAIT_S = 10.0
# Held lines of one attempt; more than that is printed by a program whose rank 0 prints nothing.
_MOST_HELD = 2000
# What was printed of so many steps is remembered: a program may print to both of its streams.
_REMEMBERED = 512
# Another loss of a step may be an evaluation; of so many steps, it is another process.
_MIXED = 3
# So many steps before the last one, one after the other, are those of a counter that began anew.
_BEHIND = 3
# What of an attempt is kept for another follower, beside who printed and what is held.
_KEPT = ("first", "last", "base", "at", "behind", "times_behind", "mixed", "drawn", "ahead")
READ, WENT_BACK, MIXED, UNTIMED = "steps_read", "step_went_back", "steps_mixed", "steps_untimed"
# When a step was made: at the time ``at``, or so many seconds before it at most.
_TIMES = ("at", "late_s")
# What a line of MUSTER_METRICS_FILE says of the run, if it says when.
_REPORTED = ("step", "checkpoint_step", "resumed_from_step")


class PrintSource(t.NamedTuple):
    """Who printed: a rank, or a node where the rank is not known."""

    rank: int | None
    node: str

    def is_same(self, other: PrintSource) -> bool:
        """Return whether it is one process; a rank may be on another node after a restart."""
        return self.rank == other.rank and (self.rank is not None or self.node == other.node)


@dataclasses.dataclass
class _Attempt:
    """What was printed in an attempt.

    :ivar held: (arrived, source, line) of those that may be rank 0's or not. :ivar first: the first printed step.
    :ivar last: the newest. :ivar at: when that was printed. :ivar base: what is added to a step since the counter began
        anew. :ivar behind: the newest of those that came one after the other before the last one.
    :ivar times_behind: how many they are. :ivar drawn: the last loss of a bar.
    :ivar ahead: figures of the step that the bar shows next. :ivar ahead_since: since when they are known to wait.
    """

    source: PrintSource | None = None
    held: list[tuple[float, PrintSource, Line]] = dataclasses.field(default_factory=list)
    first: int | None = None
    last: int | None = None
    base: int = 0
    at: float = 0.0
    behind: int | None = None
    times_behind: int = 0
    figures: dict[int, Line] = dataclasses.field(default_factory=dict)
    mixed: int = 0
    drawn: float | None = None
    ahead: Line | None = None
    ahead_since: float | None = None

    def take_ahead(self) -> list[Line]:
        """Return the figures that waited, as those of the last step."""
        line, self.ahead, self.ahead_since = self.ahead, None, None
        return [] if line is None or self.last is None else [{**line, "step": self.base + self.last}]

    def give_up(self, now: float) -> list[Line]:
        """Return figures after which no bar was drawn for long."""
        if self.ahead is None:
            return []
        self.ahead_since = now if self.ahead_since is None else self.ahead_since
        return self.take_ahead() if now - self.ahead_since >= _WAIT_S else []


@dataclasses.dataclass
class _Marks:
    """The printed marks of one kind, such as saved checkpoints: the attempt, who printed first, last and furthest."""

    attempt: int
    node: str
    last: int
    furthest: int


class PrintedSteps:
    """Takes printed lines as they are read, and returns those that count."""

    def __init__(self, kept: t.Mapping[str, t.Any] | None = None, preset: str | None = None) -> None:
        """``kept``: what :meth:`keep` returned to a follower before this one. ``preset``: that of the job."""
        self._attempts: dict[int, _Attempt] = {}
        self._marks: dict[str, _Marks] = {}
        self._usual: PrintSource | None = None
        # Whether the program reports its steps by itself: then what it prints is not needed.
        self.is_reported = False
        # Whether the program prints on one rank alone: then several losses of a step are its own.
        self._is_by_one = preset is not None and PRESETS[preset].printed_by == "one"
        self._news: list[Line] = []
        self._said: set[tuple[str, int]] = set()
        if kept:
            self._restore(kept)

    def base_of(self, attempt: int) -> int:
        """Return what is added to the steps that an attempt prints now."""
        return self._attempts[attempt].base if attempt in self._attempts else 0

    def last_of(self, attempt: int) -> int | None:
        """Return the newest step that counts of an attempt, as it was printed; None before one."""
        return self._attempts[attempt].last if attempt in self._attempts else None

    def take_news(self) -> list[Line]:
        """Return events about where the steps are from, each once."""
        news, self._news = self._news, []
        return news

    def take(
        self, node: str, line: Line, attempt: int, now: float, lead: str | None, *, wants_nan: bool = False
    ) -> list[Line]:
        """Take in a line; return the lines that count now, with keys that are for the run's metrics alone.

        :param attempt: the number of the attempt that printed it. :param lead: the node of rank 0, where it is known.
        :param wants_nan: a loss that is not a number counts, too, on a line of a step that was printed before.
        """
        rank, preset = line.pop("rank", None), line.pop("preset", None)
        if preset is not None and PRESETS[preset].printed_by == "one":
            self._is_by_one = True
        if "step" not in line:
            return [line] if self._is_new_mark(node, line, attempt) else []
        if preset is not None and self.is_reported:
            return []
        found = [item for number in list(self._attempts) if number < attempt for item in self._end(number)]
        state = self._attempts.setdefault(attempt, _Attempt())
        source = PrintSource(rank if isinstance(rank, int) else None, node)
        if preset is not None:
            self._tell(READ, 0, preset=preset)
        if state.source is None:
            state.held.append((now, source, line))
            return [*found, *self._choose(attempt, now, lead)]
        if not state.source.is_same(source):
            self._tell(READ, attempt, node=state.source.node, rank=state.source.rank)
            return found
        return [*found, *self._count(attempt, line, wants_nan)]

    def release(self, now: float, lead: str | None) -> list[Line]:
        """Return the lines that have waited long enough for rank 0."""
        chosen = [line for number in list(self._attempts) for line in self._choose(number, now, lead)]
        return [*chosen, *(line for state in self._attempts.values() for line in state.give_up(now))]

    def release_all(self) -> list[Line]:
        """Return what is held, at the end."""
        return [line for number in list(self._attempts) for line in self._end(number)]

    def _end(self, attempt: int) -> list[Line]:
        """Return what is held of an attempt that prints no more."""
        state = self._attempts[attempt]
        return [*self._release(attempt), *state.take_ahead()]

    def _choose(self, attempt: int, now: float, lead: str | None) -> list[Line]:
        state = self._attempts[attempt]
        if state.source is not None or not state.held:
            return []
        wanted = self._usual

        def is_wanted(source: PrintSource) -> bool:
            first = source.rank == 0 or (source.rank is None and source.node == lead)
            return first or bool(wanted and wanted.is_same(source))

        sure = next((source for _at, source, _line in state.held if is_wanted(source)), None)
        if sure is None and now - state.held[0][0] < _WAIT_S and len(state.held) < _MOST_HELD:
            return []
        return self._release(attempt, sure)

    def _release(self, attempt: int, sure: PrintSource | None = None) -> list[Line]:
        """Return the held lines of an attempt by the one process that its figures are of."""
        state = self._attempts[attempt]
        if state.source is not None or not state.held:
            return []
        printed = [source for _at, source, _line in state.held]
        known = [source for source in printed if source.rank is not None]
        state.source = sure or min(known, key=lambda source: source.rank or 0, default=printed[0])
        held, state.held = state.held, []
        if self._usual is None or self._usual.rank != 0:
            # Rank 0 is waited for in the next attempt, too, where it was read late in this one or printed nothing.
            self._usual = state.source
        if any(not state.source.is_same(source) for source in printed) or state.source.rank:
            self._tell(READ, attempt, node=state.source.node, rank=state.source.rank)
        return [
            item
            for _at, source, line in held
            if state.source.is_same(source)
            for item in self._count(attempt, line, wants_nan=True)
        ]

    def _count(self, attempt: int, line: Line, wants_nan: bool) -> list[Line]:
        """Return the line with its step counted on, nothing for one that was printed before."""
        state, step = self._attempts[attempt], int(line["step"])
        if line.pop("of_next", False):
            found, state.ahead = state.take_ahead(), line
            return found
        if state.ahead is not None and line.get("drawn"):
            ahead, state.ahead = state.ahead, None
            counted = self._count(attempt, line, wants_nan)
            state.ahead = ahead
            return [*counted, *state.take_ahead()]
        is_drawn = line.pop("drawn", False)
        if is_drawn and step == state.last and self._is_redrawn(state, line):
            return [{**line, "step": state.base + step}]
        if is_drawn and state.last is not None and step > state.last and line.get("loss") == state.drawn:
            # A bar moves on before its figures do: these are of the step before.
            line.pop("loss", None)
        if line.pop("of_last", False):
            return [] if state.last is None else [{**line, "step": state.base + step}]
        figures = {name: value for name, value in line.items() if name not in _TIMES}
        at, before = float(line.get("at") or 0.0), state.figures.get(step)
        if state.first is None:
            state.first = step
        elif step < (state.last or 0) and at >= state.at and _begins_anew(state, step, before, figures):
            self._tell(WENT_BACK, attempt, step=state.last, back_to=step)
            state.base += state.last or 0
            state.figures.clear()
        elif step <= (state.last or 0):
            is_new = not is_drawn and self._is_first_loss(attempt, step, figures)
            is_nan = wants_nan and before != figures and _is_nan(line)
            return [{**line, "step": state.base + step}] if is_new or is_nan else []
        state.last, state.at, state.behind, state.times_behind = step, max(at, state.at), None, 0
        state.figures[step] = figures
        state.drawn = line.get("loss", state.drawn) if is_drawn else None
        if len(state.figures) > _REMEMBERED:
            del state.figures[next(iter(state.figures))]
        return [{**line, "step": state.base + step}]

    def _is_redrawn(self, state: _Attempt, line: Line) -> bool:
        """Return whether a bar that is drawn again at its step has the loss of that step now."""
        loss = line.get("loss")
        if loss is None or loss == state.drawn or _is_nan(line):
            return False
        state.drawn = loss
        return True

    def _is_first_loss(self, attempt: int, step: int, figures: Line) -> bool:
        """Return whether a line has the loss of the last step, of which those before it had none."""
        state = self._attempts[attempt]
        before = state.figures.get(step)
        self._note_mixed(attempt, before, figures)
        if step != state.last or before is None or before.get("loss") is not None or figures.get("loss") is None:
            return False
        state.figures[step] = figures
        return True

    def _note_mixed(self, attempt: int, before: Line | None, figures: Line) -> None:
        """Note that a log without ranks has several losses of one step: then it is of several processes."""
        state = self._attempts[attempt]
        if before is None or state.source is None or state.source.rank is not None or self._is_by_one:
            return
        if None not in (before.get("loss"), figures.get("loss")) and before["loss"] != figures["loss"]:
            state.mixed += 1
            if state.mixed == _MIXED:
                self._tell(MIXED, 0, node=state.source.node)

    def _is_new_mark(self, node: str, line: Line, attempt: int) -> bool:
        """Return whether a mark counts: the furthest of an attempt, or one of who printed first that is less."""
        key = next((key for key in ("checkpoint_step", "resumed_from_step") if key in line), "")
        step, seen = int(line.get(key) or 0), self._marks.get(key)
        if seen is None or seen.attempt != attempt:
            self._marks[key] = _Marks(attempt, node, step, step)
            return True
        is_new = step > seen.furthest or (node == seen.node and step < seen.last)
        if node == seen.node:
            seen.last = step
        if is_new:
            seen.furthest = step
        return is_new

    def _tell(self, kind: str, attempt: int, **values: t.Any) -> None:
        if (kind, attempt) not in self._said:
            self._said.add((kind, attempt))
            self._news.append({"kind": kind, **({"attempt": attempt} if attempt else {}), **values})

    def note_untimed(self, node: str, line: t.Mapping[str, t.Any]) -> None:
        """Note a line that the program reports by itself without a time, or with one that cannot be.

        Of which attempt it is, is not known.
        """
        if any(key in line for key in _REPORTED):
            given = {} if line.get("at") is None else {"given": str(line["at"])[:40]}
            self._tell(UNTIMED, 0, node=node, **given)

    def keep(self) -> dict[str, t.Any]:
        """Return what another follower needs to go on, as JSON can hold it; nothing before anything was printed."""
        if not self._attempts:
            return {}
        return {
            "usual": self._usual,
            "said": sorted(self._said),
            "attempts": {
                str(number): {
                    "source": state.source,
                    "held": state.held,
                    **{name: getattr(state, name) for name in _KEPT},
                }
                for number, state in self._attempts.items()
            },
        }

    def _restore(self, kept: t.Mapping[str, t.Any]) -> None:
        self._usual = PrintSource(*kept["usual"]) if kept["usual"] else None
        self._said = {(str(kind), int(number)) for kind, number in kept["said"]}
        for number, item in kept["attempts"].items():
            state = _Attempt(**{name: item[name] for name in _KEPT if name in item})
            state.source = PrintSource(*item["source"]) if item["source"] else None
            state.held = [(at, PrintSource(*source), line) for at, source, line in item["held"]]
            self._attempts[int(number)] = state


def read_event(event: t.Mapping[str, object]) -> dict[str, object]:
    """Return what an event says of a run's steps, as its record has it; nothing for other events."""
    kind = event.get("kind")
    if kind == READ:
        return {key: event[key] for key in ("preset", "rank", "node") if event.get(key) is not None}
    if kind == MIXED:
        return {"problem": "the loss is of whichever process printed first: none says its rank"}
    if kind == UNTIMED:
        given = event.get("given")
        which = f'with a time that cannot be ("at": {given})' if given else 'without a time ("at", Unix seconds)'
        return {"problem": f"what the program reports {which} is not read"}
    if kind != WENT_BACK:
        return {}
    steps = f"{event.get('step')} to {event.get('back_to')}"
    return {"went_back": True, "problem": f"the steps are not known: the counter went back from {steps} in an attempt"}


def describe_late(first: int, last: int, seconds: float) -> str:
    """Return why the times of steps are not known."""
    which = f"step {first} was" if first == last else f"steps {first} to {last} were"
    return f"when {which} made is not known: what was printed was read up to {seconds:.0f} s later"


def describe(event: t.Mapping[str, t.Any]) -> str:
    """Return the line for people about where steps are from, empty for what the record alone says."""
    if event["kind"] == WENT_BACK:
        return (
            f"warning: the step counter went back from {event['step']} to {event['back_to']}: it counts within an"
            " epoch, so the steps of the run are not known. Set job.metrics.preset, or add the groups epoch and total"
            " to job.metrics.step_pattern"
        )
    if event["kind"] == MIXED:
        return (
            f"warning: several processes of {event['node']} print steps without their rank: the loss is that of"
            " whichever printed first. Print on rank 0 alone, or add a group rank to job.metrics.step_pattern"
        )
    if event["kind"] == UNTIMED and event.get("given"):
        return (
            f"warning: {event['node']}: the program writes lines to MUSTER_METRICS_FILE with a time that cannot be"
            f' ("at": {event["given"]}): their steps, losses and checkpoints are not read. Write Unix seconds, and look'
            " at the clock of the node"
        )
    if event["kind"] == UNTIMED:
        return (
            f"warning: {event['node']}: the program writes lines without a time to MUSTER_METRICS_FILE: their steps,"
            ' losses and checkpoints are not read. Add it in Unix seconds: {"at": time.time(), "step": …}'
        )
    return f"reading the steps as {event['preset']} prints them (metrics.preset)" if event.get("preset") else ""


def _begins_anew(state: _Attempt, step: int, before: Line | None, figures: Line) -> bool:
    """Return whether a step before the last one is of a counter that began anew, and no line that came late or twice.

    One that prints to both of its streams prints the same figures again.
    """
    if before == figures and len(figures) > 1:
        return False
    if state.behind is None or step > state.behind:
        state.behind, state.times_behind = step, state.times_behind + 1
    return step <= (state.first or 0) or state.times_behind >= _BEHIND


def _is_nan(line: t.Mapping[str, t.Any]) -> bool:
    return line.get("loss") is not None and parse_finite(line["loss"]) is None
