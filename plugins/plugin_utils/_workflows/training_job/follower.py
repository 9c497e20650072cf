# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run, whatever it runs on: its history, its folder, its progress.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import time
import typing as t

from ....module_utils._model import drill as drills
from ....module_utils._model.errors import MusterError
from ....module_utils._model.job import Job
from ....module_utils._model.quantity import parse_finite
from ....module_utils._model.run_history import RunHistory
from ....module_utils._model.run_record import RunEnd
from ....module_utils._node import files
from ....module_utils._secrets.scrubber import scrub
from ..._hosts import log_follow
from ..shared import run_record
from ..shared.progress import Progress

_REPORT_INTERVAL_S = 10.0
_SAVE_INTERVAL_S = 1.0
_RECENT_LINES = 10_000
_TAIL = 64 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended. ``cause`` is a word of the run record's vocabulary, ``detail`` a line for people."""

    outcome: RunEnd
    exit_code: int
    cause: str
    detail: str
    node: str | None = None


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
        self.pattern = re.compile(job.metrics.step_pattern) if job.metrics.step_pattern else None
        self.drilled_at: float | None = None
        self._said_at = self._saved_at = 0.0
        self._shown_attempts = 0
        # A controller that was killed may have kept lines and not yet noted that it had them: they come again.
        self._kept: dict[str, frozenset[str]] = {}
        for name, feed in (("events", self.story.event), ("metrics", self.story.metric)):
            kept = _read_text(folder / f"{name}.jsonl")
            self._kept[name] = frozenset(kept.split("\n")[-_RECENT_LINES:])
            for line in log_follow.parse_json_lines(kept):
                feed(line)

    def run(self) -> RunOutcome:
        """Follow until the run has ended, and return how."""
        raise NotImplementedError

    def _rule_outcome(self) -> RunOutcome | None:
        """Return the end of a run whose machines cost too much or are due; the caller lets it save first."""
        reason = self.stop_reason()
        return RunOutcome("cancelled", 143, "cost", reason) if reason else None

    def record_event(self, kind: str, at: float | None = None, **values: t.Any) -> None:
        """Record an event that the controller saw, at the time ``at`` or now."""
        line = {"at": log_follow.now() if at is None else at, "kind": kind, **values}
        files.append_json(self.folder / "events.jsonl", line)
        self.story.event(line)

    def _write(self, node: str, stream: str, text: str) -> None:
        # A program may print what it was given.
        text = self._new_lines(stream, scrub(text))
        place = self.folder / (run_record.log_file(node) if stream == "log" else f"{stream}.jsonl")
        try:
            files.private_dir(place.parent)
            files.append_text(place, text)
        except OSError as exc:
            fix = "Free disk space, or move the file away, then run this command again to follow the run"
            raise MusterError(f"{place} cannot be written: {exc.strerror}", fix) from None
        if stream == "events":
            for line in log_follow.parse_json_lines(text):
                self.story.event(line)
        elif stream == "metrics":
            for line in log_follow.parse_json_lines(text):
                self.story.metric(line)
        elif stream == "log" and self.pattern:
            self._parse_log(text)

    def _new_lines(self, stream: str, text: str) -> str:
        """Return the lines of ``text`` that were not kept before this follower began; each has its own time."""
        kept = self._kept.get(stream)
        if not kept:
            return text
        return "".join(f"{line}\n" for line in text.split("\n") if line and line not in kept)

    def _parse_log(self, text: str) -> None:
        """Turn log lines that match the job's pattern into metrics; the first rank to print a step counts."""
        pattern = t.cast("re.Pattern[str]", self.pattern)
        for raw in text.splitlines():
            found = pattern.search(raw)
            if not found:
                continue
            line: dict[str, t.Any] = {"at": log_follow.now()}
            for key, value in found.groupdict().items():
                number = _parse_number(value)
                if number is not None:
                    line[key] = int(number) if key == "step" else number
            if isinstance(line.get("step"), int) and line["step"] != self._newest_step(line["at"]):
                files.append_json(self.folder / "metrics.jsonl", line)
                self.story.metric(line)

    def _newest_step(self, at: float) -> int | None:
        """Return the last step of the attempt at ``at``; the attempt after it may begin with the same step."""
        attempt = self.story.attempt_at(at)
        return attempt.last_step if attempt else None

    def report_resumes(self) -> None:
        """Record and say of each attempt, once, that it did not resume."""
        checkpoints = self.job.checkpoints
        judged = self.story.judge_resumes(checkpoints.interval_steps, anew=checkpoints.resume == "never")
        for n, resume in judged.items():
            if resume.problem and n not in self.story.not_resumed:
                self.record_event("not_resumed", attempt=n, detail=resume.problem)
                self.progress.say(f"warning: attempt {n} {resume.problem}")

    def _report(self) -> None:
        self.report_resumes()
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
        last = self.story.last
        return {
            "run_id": self.run_id,
            "ranks": self.story.ranks_seen(),
            "ranks_asked": self.job.world_size,
            "step": int(last["step"]) if "step" in last else None,
            "loss": last.get("loss"),
            "tokens_per_s": last.get("tokens_per_s"),
            "samples_per_s": last.get("samples_per_s"),
            "checkpoint_step": self.story.checkpoint[0] if self.story.checkpoint else None,
            "restarts": self.story.restarts,
        }

    def _save(self, force: bool = False) -> None:
        if force or time.monotonic() - self._saved_at > _SAVE_INTERVAL_S:
            self._saved_at = time.monotonic()
            self.save(self)


def describe_state(values: t.Mapping[str, t.Any]) -> str:
    """Return one progress line for people; what is unknown is left out."""
    parts = [f"nodes {values['nodes']}/{values['nodes_asked']}"] if values.get("nodes") else []
    parts += [str(values["waiting"])] if values.get("waiting") else []
    parts.append(f"ranks {values['ranks']}/{values['ranks_asked']}")
    formats = (
        ("step", "step {:d}"),
        ("loss", "loss {:.4f}"),
        ("tokens_per_s", "{:,.0f} tokens/s"),
        ("samples_per_s", "{:,.1f} samples/s"),
        ("checkpoint_step", "checkpoint {:d}"),
    )
    parts += [text.format(values[key]) for key, text in formats if values.get(key) is not None]
    if values["restarts"]:
        parts.append(f"restarts {values['restarts']}")
    if values.get("cost_usd"):
        parts.append(f"${values['cost_usd']:.2f}")
    return " · ".join(parts)


def read_tail(place: pathlib.Path) -> str:
    """Return the end of a kept log, empty when there is none."""
    try:
        with open(place, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _parse_number(text: str | None) -> float | None:
    return parse_finite((text or "").replace(",", ""))
