# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run, whatever it runs on: its history, its folder, its progress."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import time
import typing as t

from ....module_utils._model import begun_steps, printed_steps, stall, stop_on
from ....module_utils._model import drill as drills
from ....module_utils._model.errors import plain_lines
from ....module_utils._model.job import Job
from ....module_utils._model.run_attempt import Notice, describe_sharing
from ....module_utils._model.run_history import RunHistory
from ....module_utils._model.run_record import RunEnd
from ....module_utils._node import checkpoint_replica, checkpoint_room, files, full_disk, metric_lines
from ....module_utils._secrets.scrubber import scrub
from ..._hosts import log_follow
from ..shared import run_record
from ..shared.progress import Progress
from .movement import HangWatch, bound_log, describe_state

_REPORT_INTERVAL_S = 10.0
_SAVE_INTERVAL_S = 1.0
_STORE_INTERVAL_S = 3600.0
_RECENT_LINES = 10_000
# The key in offsets.json, which no node has as its name, of how long the files were that the offsets belong to.
_KEPT = ""
_READ_AGAIN = ("events", "metrics")
# Of a printed line, what no metric has.
_READ_KEYS = ("rank", "preset", "of_last", "of_next", "drawn")
# Exit codes above are 128 + the signal by which a process was killed.
_SIGNALS = 128


@dataclasses.dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended. ``cause`` is a word of the run record's vocabulary, ``detail`` a line for people.

    ``explained``: the line says all that there is to do. ``left``: which rank ended before, without an error.
    """

    outcome: RunEnd
    exit_code: int
    cause: str
    detail: str
    node: str | None = None
    explained: bool = False
    left: str = ""


# So long after a gang has ended, what its ranks printed can still be dated by the kubelet.
_LATE_S = 1.0


class Follower:
    """The base of all followers: the run's history and its folder. ``save(follower)`` writes the run's record."""

    def __init__(
        self,
        job: Job,
        run_id: str,
        folder: pathlib.Path,
        progress: Progress,
        save: t.Callable[[Follower], None],
        drill: drills.Drill | None,
        stop_reason: t.Callable[[], str] = lambda: "",
    ) -> None:
        self.job, self.run_id, self.folder = job, run_id, folder
        self.progress, self.save, self.drill, self.stop_reason = progress, save, drill, stop_reason
        self.story = RunHistory()
        self.offsets: dict[str, dict[str, t.Any]] = files.read_json(folder / "offsets.json") or {}
        self._forms: metric_lines.Forms = job.metrics.forms
        self.drilled_at: float | None = None
        # Why a drill that is due has killed nothing yet, and what to do.
        self.drill_problem: tuple[str, str] | None = None
        self.is_proven = False
        # When the proof of a drill is looked for again, and after what time then.
        self._proof_at, self._proof_wait = 0.0, 1.0
        self.stop_rules = stop_on.StopRules(job.stop_on, time.monotonic())
        self._said_at = self._saved_at = 0.0
        self._nan_said = False
        # For how long the run has made no step, once it stands.
        self.stalled_s: float | None = None
        self.hangs = HangWatch(self)
        # When it was said last that checkpoints are not stored, None while they are.
        self._unstored_at: float | None = None
        # Sends word to those whom the task names.
        self.notify: t.Callable[[str], None] = lambda _text: None
        self._shown_attempts = 0
        # A controller that was killed may have kept lines and not yet noted that it had them: they come again.
        self._kept: dict[str, frozenset[str]] = {}
        printed = (self.offsets.get(_KEPT) or {}).get("printed")
        self._printed = printed_steps.PrintedSteps(printed, job.metrics.preset)
        self._readers: dict[str, metric_lines.LineReader] = {}
        self.begun = begun_steps.BegunSteps()
        self._full = full_disk.FullDisks()
        # The first notice of preemption that has come while this follower was there.
        self.noticed: Notice | None = None
        self._said_of_replicas: set[str] = set()
        self._events_read = size_of(folder / "events.jsonl")
        for name, feed in (("events", self._take_event), ("metrics", self.story.metric)):
            kept = files.read_text(folder / f"{name}.jsonl")
            self._kept[name] = frozenset(kept.split("\n")[-_RECENT_LINES:])
            for line in files.parse_json_lines(kept):
                feed(line)
        # Those of before, and of an earlier start, were said by the follower that saw them.
        base = self.story.base
        self._said_crashes = {attempt.n for attempt in self.story.attempts if attempt.followed or attempt.n < base}

    def kept_events(self) -> t.Iterator[dict[str, t.Any]]:
        """Yield the lines of events.jsonl."""
        yield from files.parse_json_lines(files.read_text(self.folder / "events.jsonl"))

    def take_cut(self) -> list[str]:
        """Return which files of the run are shorter than they were, as after a loss of power: they are read again."""
        kept, cut = self.offsets.pop(_KEPT, {}), []
        for stream in _READ_AGAIN:
            place = self.folder / f"{stream}.jsonl"
            if size_of(place) >= kept.get(stream, 0):
                continue
            if size_of(place):
                # What comes next begins a line of its own.
                files.append_text(place, "\n")
            self.progress.say(f"warning: {place.name} of run {self.run_id} was cut: reading it again from the nodes")
            cut.append(stream)
        if "metrics" in cut:
            self._printed = printed_steps.PrintedSteps(preset=self.job.metrics.preset)
        return cut

    def write_offsets(self) -> None:
        """Write how far the nodes were read, with how long the files are to which that belongs."""
        kept = {stream: size_of(self.folder / f"{stream}.jsonl") for stream in _READ_AGAIN}
        printed = self._printed.keep()
        known = {**kept, **({"printed": printed} if printed else {})}
        files.write_json(self.folder / "offsets.json", {**self.offsets, _KEPT: known})

    def run(self) -> RunOutcome:
        """Follow until the run has ended, and return how."""
        raise NotImplementedError

    def _rule_outcome(self) -> RunOutcome | None:
        """Return the end of a run that costs too much, is due or trains nothing; the caller lets it save first."""
        reason = self.stop_reason()
        if reason:
            return RunOutcome("cancelled", 143, "cost", reason)
        uneven = self._find_uneven()
        if uneven:
            return RunOutcome("failed", 1, "uneven_resume", uneven[0], uneven[1])
        full = self._full.find_end([item for item in self.story.attempts if item.n >= self.story.base])
        if full:
            return RunOutcome("failed", full.exit_code, "disk_full", full.detail, full.node)
        if self.stalled_s is not None and self._awaits_proof():
            stood = stall.describe(self.stalled_s, self.story.pace_meter.read())
            return RunOutcome("failed", 1, "stalled", f"stands since the drill, which proved nothing: {stood}")
        hung = self.hangs.decide()
        if hung.action == "end":
            return RunOutcome("failed", 1, "hang", hung.detail, hung.node)
        stop = self.stop_rules.judge(self.story, time.monotonic(), self._is_seen())
        if stop is None:
            return None
        detail, node = self.hangs.name_end(stop.cause, stop.detail)
        return RunOutcome("failed", 1, stop.cause, detail, node)

    def _find_uneven(self) -> tuple[str, str] | None:
        return self.begun.find_problem(self.story.attempts[-1].gang or "") if self.story.attempts else None

    def _is_seen(self) -> bool:
        """Return whether all of the run is running, as far as this follower knows, and what it writes is read."""
        return bool(self.story.attempts)

    def record_event(self, kind: str, at: float | None = None, **values: t.Any) -> None:
        """Record an event that the controller saw, at the time ``at`` or now."""
        line = {"at": log_follow.now() if at is None else at, "kind": kind, **values}
        files.append_json(self.folder / "events.jsonl", line)
        self.story.event(line)

    def _take_event(self, line: t.Mapping[str, t.Any]) -> None:
        self.story.event(line)
        self.begun.event(line)
        self._full.event(line)

    def _say_event(self, line: t.Mapping[str, t.Any]) -> None:
        """Say what a node did about checkpoints before its ranks began."""
        node, detail = line.get("node"), line.get("detail")
        if line.get("kind") == "checkpoint_copied":
            size = f"{line['bytes'] / 1e6:.1f} MB in {line['seconds']:.1f} s"
            self.progress.say(f"{node}: copied checkpoint {detail} from {line['source']} ({size})")
        elif line.get("kind") == "checkpoint_passed_over":
            self.progress.say(f"{node}: {detail}")
        elif (
            line.get("kind") == "agent_restart" and detail == "node_lost" and int(line.get("exit_code") or 0) > _SIGNALS
        ):
            # Its ranks went with it, so that no exit of theirs says why.
            signal = int(line["exit_code"]) - _SIGNALS
            self.progress.say(f"{node}: the launcher was killed (signal {signal}) and is started again")
        elif line.get("kind") == "checkpoints_not_compared":
            self.progress.say(f"warning: {node}: checkpoints of other nodes would not be copied here: {detail}")
        elif said := checkpoint_room.describe(line):
            self.progress.say(said)
        elif (said := checkpoint_replica.describe(line)) and (
            key := f"{node} {line['kind']}"
        ) not in self._said_of_replicas:
            self._said_of_replicas.add(key)
            self.progress.say(said)

    def _take_notices(self) -> None:
        """Take in and say what heal has written into the run's events meanwhile: that a machine will be taken away."""
        place = self.folder / "events.jsonl"
        if size_of(place) <= self._events_read:
            return
        with open(place, "rb") as events:
            events.seek(self._events_read)
            new = events.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._events_read += len(whole)
        known = {(item.at, item.node) for item in self.story.notices}
        for line in files.parse_json_lines(whole.decode(errors="replace")):
            if line.get("kind") == "notice" and (line.get("at"), line.get("node")) not in known:
                self.story.event(line)
                self.progress.say(f"{line.get('node')} will be taken away: {line.get('detail')}")
                self.noticed = self.noticed or self.story.notices[-1]

    def _is_drill_due(self, now: float) -> bool:
        """Return whether the fault is to be injected now: at its time, and not before a kill could prove a resume."""
        if not self.drill or self.drilled_at is not None or not drills.is_due(self.drill, self.story, now):
            return False
        if self.drill.cut_s or drills.can_prove(self.story, self.job.checkpoints.interval_steps):
            self.drill_problem = None
            return True
        # With the first checkpoint.
        if self.drill_problem is None:
            self.drill_problem = "no checkpoint was saved that a kill could prove a resume from", drills.DRILL_FIX
            self.progress.say("drill: waiting for the first checkpoint; a kill now would prove nothing")
        return False

    def _record_drill(self, at: float, node: str, what: str) -> None:
        """Record the fault that was injected at a time: ``killed rank 1``, or ``off its network for 30 s``."""
        self.drilled_at = at
        is_cut = bool(self.drill and self.drill.cut_s)
        # The gang may survive a cut: it counts as no attempt's fault.
        self.record_event("cut" if is_cut else "drill", at, node=node, detail=what)
        said = f"cut {node} {what}" if is_cut else f"{what} on {node}"
        step = self.story.last.get("step")
        self.progress.say(f"drill: {said} {'before the first step' if step is None else f'at step {int(step)}'}")

    def _awaits_proof(self) -> bool:
        """Return whether a drill has killed something, and the run has not proven yet that it resumed."""
        return self.drilled_at is not None and not self.is_proven and bool(self.drill and not self.drill.cut_s)

    def _say_proof(self) -> None:
        """Say that a run has resumed after the drill once that is proven; it is looked for less and less often."""
        attempt = self.story.attempts[-1] if self.story.attempts and self._awaits_proof() else None
        if attempt is None or attempt.first_step is None or attempt.started_at < (self.drilled_at or 0.0):
            return
        if time.monotonic() < self._proof_at:
            return
        # Late: of use for drills alone.
        from ..._report.data import drills as judged

        self._proof_at, self._proof_wait = time.monotonic() + self._proof_wait, min(60.0, 2 * self._proof_wait)
        self._save(force=True)
        proof = judged.judge_drill(self.folder, self.drilled_at or 0.0)
        self.is_proven = bool(proof["resumed"])
        if self.is_proven:
            figures = f"{proof['seconds_to_resume']} s with {proof['world_size']} ranks"
            self.progress.say(f"drill: resumed in {figures}, proven; the run continues to its end")

    def take_text(self, node: str, stream: str, text: str, times: t.Sequence[float | None] = ()) -> None:
        """Keep text of a node. ``times``: when each of its lines was printed, as far as that is known.

        The stream ``again`` are lines of a log that is kept, whose metrics may not be.
        """
        # A program may print what it was given.
        text = scrub(text)
        if stream == "again":
            # Lines of a log that is there.
            self._parse_log(node, text, times)
            return
        if stream == "metrics":
            for line in files.parse_json_lines(text):
                self.begun.step(node, line)
        text = self._new_lines(stream, self._without_repeats(node, text) if stream == "metrics" else text)
        kept = plain_lines(text) if stream == "log" else text
        place = self.folder / (run_record.log_file(node) if stream == "log" else f"{stream}.jsonl")
        files.private_dir(place.parent)
        files.append_text(place, kept)
        if stream == "events":
            for line in files.parse_json_lines(text):
                self._take_event(line)
                self._say_event(line)
            self._record_begun()
        elif stream == "metrics":
            self._take_reported(node, text)
        elif stream == "log":
            bound_log(place)
            if full := self._full.take_text(node, text, self.story.attempts):
                self.record_event(**full.to_event())
                self.progress.say(full.warn())
            self._parse_log(node, text, times)

    def _take_reported(self, node: str, text: str) -> None:
        for line in files.parse_json_lines(text):
            if not self.story.metric(line):
                self._printed.note_untimed(node, line)
        self._record_begun()

    def _record_begun(self) -> None:
        for line in self.begun.take_news():
            files.append_json(self.folder / "events.jsonl", {"at": log_follow.now(), **line})

    def _new_lines(self, stream: str, text: str) -> str:
        """Return the lines of ``text`` that were not kept before this follower began; each has its own time."""
        kept = self._kept.get(stream)
        if not kept:
            return text
        return "".join(f"{line}\n" for line in text.split("\n") if line and line not in kept)

    def _without_repeats(self, node: str, text: str) -> str:
        """Return metrics without those of printed lines that do not count; what is held for now comes later."""
        lines = []
        for raw in text.splitlines(keepends=True):
            # Most programs report by themselves, and much: only what was printed is parsed here.
            line = next(files.parse_json_lines(raw), {}) if metric_lines.MARK in raw else {}
            if line.pop("printed", None) is None:
                self._printed.is_reported = self._printed.is_reported or '"step"' in raw
                lines.append(raw)
            else:
                lines += map(files.json_line, self._take_printed(node, line))
        return "".join(lines)

    def _parse_log(self, node: str, text: str, times: t.Sequence[float | None]) -> None:
        """Turn log lines that match the job's patterns into metrics."""
        reader = self._readers.setdefault(node, metric_lines.LineReader(self._forms))
        if reader.is_guessed and self._printed.is_reported:
            reader.stop()
        if not reader:
            return
        for raw, at in itertools.zip_longest(text.split("\n"), times):
            now = log_follow.now() if at is None else at
            for line in reader.read(raw or "", now):
                if at is None and (late_s := self._unread_s(now)):
                    line["late_s"] = late_s
                if at is not None:
                    # A line without its time may be of an attempt before.
                    self.begun.resume(node, {**line, "printed": True})
                self._keep_printed(self._take_printed(node, line))

    def _unread_s(self, now: float) -> float:
        """Return for how long at most a line was printed before now that has no time."""
        newest = self.story.attempts[-1] if self.story.attempts else None
        since = now if newest is None else newest.last_step_at or newest.started_at
        return round(max(0.0, now - since), 3)

    def _take_printed(self, node: str, line: dict[str, t.Any]) -> list[dict[str, t.Any]]:
        number = self._printed_in(line)
        if "step" in line and self._kept["metrics"]:
            # A follower before this one had it, and was killed before it noted so.
            plain = {key: value for key, value in line.items() if key not in _READ_KEYS}
            steps = (line["step"], line["step"] + self._printed.base_of(number))
            if any(files.json_line({**plain, "step": step}).rstrip() in self._kept["metrics"] for step in steps):
                return []
        wants_nan = self.story.nan_since is None
        return self._printed.take(node, line, number, time.monotonic(), self._lead(), wants_nan=wants_nan)

    def _lead(self) -> str | None:
        """Return the node of rank 0, where it is known."""
        return self.story.attempts[-1].ranks.get(0) if self.story.attempts else None

    def _keep_printed(self, lines: t.Iterable[dict[str, t.Any]]) -> None:
        for line in lines:
            if files.json_line(line).rstrip() not in self._kept["metrics"]:
                files.append_json(self.folder / "metrics.jsonl", line)
                self.story.metric(line)

    def _release_printed(self, ended: bool = False) -> None:
        """Take in printed lines that waited for rank 0, and say whose steps are read."""
        printed = self._printed
        self._keep_printed(printed.release_all() if ended else printed.release(time.monotonic(), self._lead()))
        for event in printed.take_news():
            self.record_event(**event)
            said = printed_steps.describe(event)
            if said:
                self.progress.say(said)

    def _printed_in(self, line: t.Mapping[str, t.Any]) -> int:
        """Return the number of the attempt that printed a line, which may be read before the event that it began."""
        at = float(line.get("at") or 0.0)
        begun = self.story.attempt_at(at)
        if begun is None:
            return 0
        ends = [end.at for end in begun.exits.values()]
        is_over = len(ends) >= len(begun.ranks) and at > max(ends, default=at) + _LATE_S
        # A bar is drawn once more when its program closes it, and that may be read late.
        is_again = "step" in line and line["step"] == self._printed.last_of(begun.n)
        return begun.n + (is_over and not is_again)

    def report_resumes(self) -> None:
        """Record and say of each attempt, once, that it did not resume."""
        checkpoints, uneven = self.job.checkpoints, self._find_uneven()
        if uneven and (number := self.story.attempts[-1].n) not in self.story.uneven:
            # The error of the run's end says it, too.
            self.record_event("uneven_resume", attempt=number, detail=uneven[0])
        judged = self.story.judge_resumes(checkpoints.interval_steps, anew=checkpoints.resume == "never")
        for n, resume in judged.items():
            if resume.problem and n not in self.story.not_resumed:
                self.record_event("not_resumed", attempt=n, detail=resume.problem)
                self.progress.say(f"warning: attempt {n} {resume.problem}")

    def _say_crashes(self) -> None:
        """Say of each attempt, once, which rank of it failed first: what ends the run is said with its end."""
        for attempt in self.story.attempts:
            said = "" if attempt.n in self._said_crashes else attempt.describe_crash()
            if said:
                self._said_crashes.add(attempt.n)
                self.progress.say(said)

    def _warn_of_nan(self) -> None:
        """Say that the loss is no longer a number; once, until it is a number again."""
        since = self.story.nan_since
        if since is not None and not self._nan_said:
            self.record_event("nan", step=since)
            self.progress.say(f"warning: {stop_on.describe_nan(since)}; {stop_on.describe_nan_ways(self.job.stop_on)}")
        self._nan_said = since is not None

    def _warn_of_stall(self) -> None:
        """Say that the run stands by its own step time; once, until it makes a step again."""
        stood = self.stop_rules.stood_s
        # A gang that was killed for it makes no step until it begins anew.
        is_stalled = not self.hangs.has_killed and self.story.judge_movement(stood) == "stalled"
        if is_stalled and self.stalled_s is None:
            what = stall.describe(stood, self.story.pace_meter.read())
            self.record_event("stalled", step=self.story.last.get("step"), detail=what)
            self.progress.say(f"warning: {what}. {stop_on.describe_ways(self.job.stop_on, self.job.restart)}")
        self.stalled_s = stood if is_stalled else None

    def kill_rank(self, rank: int, node: str) -> float | None:
        """Kill a rank of the newest attempt; return when (Unix seconds), None where that did not work."""
        raise NotImplementedError

    def _describe_unstored(self) -> str:
        binding = None if self.job.engine == "rayjob" else self.job.checkpoints.binding
        return self.story.describe_unstored(binding, ended=False) if binding else ""

    def _warn_of_store(self) -> None:
        """Say that checkpoints are not stored: at once, then every hour, until they are again."""
        unstored, now = self._describe_unstored(), time.monotonic()
        if not unstored:
            if self._unstored_at is not None:
                stored = self.story.newest_stored()
                self.progress.say(f"checkpoints are stored again: {stored.name if stored else ''}")
            self._unstored_at = None
        elif self._unstored_at is None or now - self._unstored_at > _STORE_INTERVAL_S:
            if self._unstored_at is None:
                self.notify(unstored)
            self._unstored_at = now
            self.progress.say(f"warning: {unstored}. The run continues")

    def _report(self) -> None:
        self._release_printed()
        self._take_notices()
        self.report_resumes()
        self._say_crashes()
        self._warn_of_nan()
        self._warn_of_stall()
        self.hangs.update()
        self._say_proof()
        self._warn_of_store()
        values = self.state()
        self.progress.show(values)
        attempts = self.story.attempts
        new_attempt = len(attempts) > self._shown_attempts and attempts[-1].first_step is not None
        if new_attempt or time.monotonic() - self._said_at > _REPORT_INTERVAL_S:
            self._said_at = time.monotonic()
            if new_attempt:
                self._shown_attempts = len(attempts)
            self.progress.say(describe_state(values))

    def state(self) -> dict[str, object]:
        """Return where the run is: ranks, step, loss, speed, checkpoint, restarts; backends add their nodes."""
        attempts = self.story.attempts
        # What an earlier start of the run reached is not where this one is.
        begun = bool(attempts) and attempts[-1].n >= self.story.base
        last = self.story.last if begun else {}
        return {
            "run_id": self.run_id,
            "ranks": self.story.ranks_running(),
            "ranks_asked": self.job.world_size,
            "step": int(last["step"]) if "step" in last and self.story.are_steps_known else None,
            "step_age_s": self._step_age() if begun else None,
            "stalled_s": self.stalled_s,
            "hang": self.hangs.describe(),
            "loss": last.get("loss"),
            "tokens_per_s": last.get("tokens_per_s"),
            "samples_per_s": last.get("samples_per_s"),
            "checkpoint_step": self.story.checkpoint[0] if self.story.checkpoint else None,
            "checkpoint_step_by": self.story.layout.get("step_by"),
            "stored": self._describe_stored(),
            "sharing": self._describe_sharing(),
            "restarts": self.story.restarts,
        }

    def _describe_sharing(self) -> str | None:
        sharing = self.story.find_sharing(self.job.nproc)
        return describe_sharing(*sharing) if sharing else None

    def _describe_stored(self) -> str | None:
        """Return which checkpoint is stored where later ones are not, None where all are or are on their way."""
        if not self._describe_unstored():
            return None
        stored = self.story.newest_stored()
        return "none stored" if stored is None else f"stored {stored.name if stored.step is None else stored.step}"

    def _step_age(self) -> float | None:
        """Return the seconds since the last step that is known, by the clocks of its node and of this controller."""
        times = [attempt.last_step_at for attempt in self.story.attempts if attempt.last_step_at is not None]
        return max(0.0, log_follow.now() - max(times)) if times else None

    def _save(self, force: bool = False) -> None:
        if force or time.monotonic() - self._saved_at > _SAVE_INTERVAL_S:
            self._saved_at = time.monotonic()
            self.save(self)


def size_of(place: pathlib.Path) -> int:
    try:
        return place.stat().st_size
    except OSError:
        return 0


def error_file(folder: pathlib.Path, node: str) -> pathlib.Path:
    """Return where a run's folder keeps what the ranks of a node wrote last to standard error."""
    return (folder / run_record.log_file(node)).with_suffix(".err")
