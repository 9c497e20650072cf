# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a run is: whether it moves (the rule is ``_model/stall.py``), in one line, and what is done where it hangs."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ....module_utils._model import on_hang, stall
from ....module_utils._model.run_history import fold
from ....module_utils._node import files
from ..._hosts import log_follow

if t.TYPE_CHECKING:
    from ....module_utils._model.hang import Hang
    from ....module_utils._model.job import Job
    from ....module_utils._model.run_history import RunHistory
    from ....module_utils._model.stop_on import StopRules
    from ..shared.progress import Progress

_TAIL = 64 << 10
_LARGEST_LOG = 64 << 20
# What is older is shown with its age.
_FRESH_S = 15.0
# So many names and more are counted.
_FEW = 4


def read_movement(folder: pathlib.Path, now: float) -> tuple[stall.Movement, str]:
    """Return whether the newest attempt of a run moves, and in words who hangs, else for how long it made no step."""
    events = files.parse_json_lines(files.read_text(folder / "events.jsonl"))
    history = fold(events, files.parse_json_lines(read_end(folder / "metrics.jsonl")))
    if not history.attempts:
        return "moving", ""
    newest = history.attempts[-1]
    since = max(0.0, now - (newest.last_step_at or newest.started_at))
    hang = history.find_hang(since)
    if hang is not None:
        return "stalled", hang.describe(now)
    return history.judge_movement(since), stall.describe(since, history.pace_meter.read())


def describe_state(values: t.Mapping[str, t.Any]) -> str:
    """Return one progress line for people; what is unknown is left out."""
    parts = [f"nodes {values['nodes']}/{values['nodes_asked']}"] if values.get("nodes") else []
    parts += [str(values["sharing"])] if values.get("sharing") else []
    if unheard := values.get("unheard"):
        # They may run: this follower has no answer of theirs yet.
        parts.append(f"{', '.join(unheard) if len(unheard) < _FEW else len(unheard)} not heard from yet")
    silent = sorted((values.get("silent") or {}).items())
    parts += [f"last answer of {node} {seconds} s ago" for node, seconds in silent]
    parts += [str(values["waiting"])] if values.get("waiting") else []
    parts.append(f"ranks {values['ranks']}/{values['ranks_asked']}")
    formats = (
        ("step", "step {:d}"),
        ("loss", "loss {:.4f}"),
        ("tokens_per_s", "{:,.0f} tokens/s"),
        ("samples_per_s", "{:,.1f} samples/s"),
        ("checkpoint_step", "checkpoint about {:d}" if values.get("checkpoint_step_by") else "checkpoint {:d}"),
        ("stored", "{}"),
    )
    figures = [text.format(values[key]) for key, text in formats if values.get(key) is not None]
    if values.get("stalled_s"):
        figures.append(f"no step for {stall.format_span(values['stalled_s'])}")
    elif (values.get("step_age_s") or 0.0) >= _FRESH_S and figures:
        figures.append(f"{values['step_age_s']:.0f} s ago")
    parts += figures
    if values.get("hang"):
        # Of all that is known, the first words fit a line.
        parts.append(str(values["hang"]).partition("; ")[0])
    if values["restarts"]:
        parts.append(f"restarts {values['restarts']}")
    if values.get("cost_usd"):
        parts.append(f"${values['cost_usd']:.2f}")
    return " · ".join(parts)


def fit_line(line: str, width: int) -> str:
    """Return a progress line that is not longer than ``width``: whole parts of it, else whole words, then ``…``."""
    if len(line) <= width:
        return line
    for between, end in ((" · ", " · …"), (" ", " …")):
        cut = line.rfind(between, 0, max(0, width - len(end)) + len(between))
        if cut > 0:
            return line[:cut] + end
    return line[: max(0, width - 1)] + "…"


def read_end(place: pathlib.Path) -> str:
    """Return the last lines of a file, empty where it cannot be read."""
    try:
        with open(place, "rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _TAIL))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""


def bound_log(place: pathlib.Path) -> None:
    """Keep the end of a log that has grown too large; the nodes have more of it."""
    try:
        size = place.stat().st_size
        if size <= _LARGEST_LOG:
            return
        with open(place, "rb") as log:
            log.seek(size - _LARGEST_LOG // 2)
            kept = log.read().partition(b"\n")[2]
        files.write_atomic(place, f"muster: {(size - len(kept)) / 1e6:.1f} MB were left out here\n".encode() + kept)
    except OSError:
        return


class FollowedGang(t.Protocol):
    """What a follower knows of its run, and can do with it."""

    job: Job
    story: RunHistory
    progress: Progress
    stop_rules: StopRules
    notify: t.Callable[[str], None]

    def record_event(self, kind: str, at: float | None = None, **values: t.Any) -> None:
        """Record an event that the controller saw, at the time ``at`` or now."""

    def kill_rank(self, rank: int, node: str) -> float | None:
        """Kill a rank of the newest attempt; return when (Unix seconds), None where that did not work."""


class HangWatch:
    """Judges the newest attempt at every turn of its follower."""

    def __init__(self, follower: FollowedGang) -> None:
        self._follower = follower
        self._hang: Hang | None = None
        # The attempt whose hang was said.
        self._said_of = 0
        # The attempt of which a rank was killed because it hung, and when.
        self._ended: tuple[int, float] | None = None

    def describe(self) -> str | None:
        """Return who is waited for, and since when, in words; None where the gang does not hang."""
        return self._hang.describe(log_follow.now()) if self._hang else None

    def name_end(self, cause: str, detail: str) -> tuple[str, str | None]:
        """Return the line of a run's end, of one that stood with who is waited for, as far as is seen, and whose node.

        The last line says no less than the warning before it.
        """
        hung = self._hang
        if cause != "stalled" or hung is None:
            return detail, None
        return f"{detail}; the run {hung.describe(log_follow.now())}", hung.culprits[0].node if hung.culprits else None

    def update(self) -> None:
        """Say who is waited for, at which line, once, until the gang moves again; kill it where the job asks for that.

        Its end starts the gang again.
        """
        follower = self._follower
        found, before = follower.story.find_hang(follower.stop_rules.stood_s), self._hang
        if self._is_being_ended():
            # The others wait for the rank that was killed, until its launcher stops them.
            self._hang = None
            return
        self._hang = found
        if found is not None and (before is None or before.culprits != found.culprits):
            said = found.describe(log_follow.now())
            follower.record_event("hang", **found.to_event())
            follower.progress.say(f"warning: the run {said}")
            follower.notify(f"the run {said}")
            self._said_of = follower.story.attempts[-1].n
        elif found is None and before is not None and self._moves_again():
            follower.record_event("hang_over")
            follower.progress.say("the run hangs no longer")
        self._kill(self.decide())

    @property
    def has_killed(self) -> bool:
        """Whether a rank of the newest attempt was killed because it hung: the gang ends, and begins anew."""
        attempts = self._follower.story.attempts
        return bool(self._ended and attempts and attempts[-1].n == self._ended[0])

    def _is_being_ended(self) -> bool:
        return self.has_killed and bool(self._follower.story.attempts[-1].exits)

    def _moves_again(self) -> bool:
        """Return whether ranks of the gang that hung go on: where they end, it hung until then."""
        newest = self._follower.story.attempts[-1]
        return newest.n == self._said_of and not newest.exits

    def decide(self) -> on_hang.HangDecision:
        """Return what follows the hang of the newest attempt now."""
        follower = self._follower
        attempt = follower.story.attempts[-1] if follower.story.attempts else None
        if attempt is None or self._hang is None:
            return on_hang.HangDecision("none")
        running = {rank: node for rank, node in attempt.ranks.items() if rank not in attempt.exits}
        killed_at = self._ended[1] if self._ended and self._ended[0] == attempt.n else None
        now, used = log_follow.now(), follower.story.crashes
        return on_hang.decide(follower.job.restart, self._hang, running, now, used, killed_at)

    def _kill(self, hung: on_hang.HangDecision) -> None:
        if hung.action != "kill" or hung.rank is None:
            return
        follower, node = self._follower, str(hung.node)
        at = follower.kill_rank(hung.rank, node)
        if at is None:
            # It is tried again at the next turn.
            return
        self._ended = follower.story.attempts[-1].n, log_follow.now()
        before = sum(cause == "hang" and where == node for _at, cause, where in follower.story.faults)
        follower.record_event("hang_ended", at, node=node, rank=hung.rank, detail=hung.detail)
        often = f"; {node} hung {before + 1} times in this run" if before and follower.job.nodes > 1 else ""
        follower.progress.say(f"killed rank {hung.rank} on {node}, so that the gang starts again{often}")
