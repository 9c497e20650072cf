# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run to its end: folds what the nodes report into the run folder, shows progress, deals with faults.

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
from ....module_utils._model.job import TORCHRUN_FAMILY, Job
from ....module_utils._model.run_history import RunHistory
from ....module_utils._node import files
from ....module_utils._secrets.scrubber import scrub
from ..._hosts import log_follow
from ..._hosts.node_client import Remote
from ..shared import run_record
from ..shared.progress import Progress

_IDLE_S = 1.0
_SAY_EVERY_S = 10.0
_SAVE_EVERY_S = 1.0
# With on_lost_node: fail, a node that is silent for so long is lost; shorter is a hiccup of the connection.
_SILENT_S = 10
_AGAIN_LINES = 10_000
_TAIL = 64 * 1024
_GONE: dict[str, t.Any] = {"alive": False, "exit": None, "state": "gone"}


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. ``cause`` is a word of the run record's vocabulary, ``detail`` a line for people."""

    outcome: str
    exit_code: int
    cause: str
    detail: str
    node: str | None = None


class Follower:
    """The state of following one run. ``restart(node)`` starts a node's agent again; ``save(follower)`` records."""

    def __init__(
        self,
        job: Job,
        run_id: str,
        folder: pathlib.Path,
        remotes: t.Sequence[Remote],
        progress: Progress,
        restart: t.Callable[[Remote], None],
        save: t.Callable[[Follower], None],
        drill: drills.Drill | None,
        over: t.Callable[[], str] = lambda: "",
    ) -> None:
        self.over = over
        self.job, self.run_id, self.folder = job, run_id, folder
        self.remotes = {remote.name: remote for remote in remotes}
        self.progress, self.restart, self.save, self.drill = progress, restart, save, drill
        self.story = RunHistory()
        self.units: dict[str, t.Mapping[str, t.Any]] = {}
        self.offsets: dict[str, dict[str, t.Any]] = files.read_json(folder / "offsets.json") or {}
        self.pattern = re.compile(job.metrics.step_pattern) if job.metrics.step_pattern else None
        self.lost_since: dict[str, float] = {}
        self.revived_at: dict[str, float] = {}
        self.lost = 0
        self.drilled_at: float | None = None
        self._said_at = self._saved_at = 0.0
        self._shown_attempts = 0
        # A controller that was killed may have kept lines and not yet noted that it had them: they come again.
        self._kept: dict[str, frozenset[str]] = {}
        for name, feed in (("events", self.story.event), ("metrics", self.story.metric)):
            kept = _text(folder / f"{name}.jsonl")
            self._kept[name] = frozenset(kept.split("\n")[-_AGAIN_LINES:])
            for line in log_follow.lines(kept):
                feed(line)

    def run(self) -> Outcome:
        """Follow until the run has ended; the caller stops what is left on the nodes."""
        batch = 0.2 if self.drill else 1.0
        parent = os.getppid()
        following = log_follow.Watch(list(self.remotes.values()), self.run_id, self.offsets, batch)
        try:
            for update in following.updates(_IDLE_S):
                if os.getppid() != parent:
                    # ansible-playbook was killed and left its worker: it must not hold the run's lock.
                    raise MusterError(f"run {self.run_id} is no longer followed: ansible-playbook has ended")
                if update is not None:
                    self._take(update)
                outcome = self._verdict() or self._too_dear()
                if outcome:
                    return outcome
                self._drill_if_due()
                self._tell()
        finally:
            following.close()
            self._save(force=True)
        raise MusterError(f"run {self.run_id} is no longer followed")

    def _too_dear(self) -> Outcome | None:
        """Return the end of a run whose machines cost too much or are due; the caller lets it save first."""
        reason = self.over()
        return Outcome("cancelled", 143, "cost", reason) if reason else None

    def event(self, kind: str, **values: t.Any) -> None:
        """Record an event that the controller saw."""
        line = {"at": log_follow.now(), "kind": kind, **values}
        files.append_json(self.folder / "events.jsonl", line)
        self.story.event(line)

    def _take(self, update: log_follow.Update) -> None:
        if update.error is not None:
            self._unreachable(update.node, update.error)
            return
        if self.lost_since.pop(update.node, None) is not None:
            self.event("node_back", node=update.node)
            self.progress.say(f"{update.node} is back")
        # A node whose run folder somebody removed knows no unit of it: what it had is gone.
        self.units[update.node] = update.units if "agent" in update.units else {**update.units, "agent": _GONE}
        for stream, text in update.text.items():
            self._write(update.node, stream, text)
        self.offsets[update.node] = dict(update.offsets)
        files.write_json(self.folder / "offsets.json", self.offsets)
        if update.asked_at > self.revived_at.get(update.node, 0.0):
            self._revive(update.node)
        self._save()

    def _write(self, node: str, stream: str, text: str) -> None:
        # A program may print what it was given.
        text = self._news(stream, scrub(text))
        place = self.folder / (run_record.log_file(node) if stream == "log" else f"{stream}.jsonl")
        try:
            files.private_dir(place.parent)
            files.append_text(place, text)
        except OSError as exc:
            fix = "Make room for it, or move what is in its place: the same command then follows the run on"
            raise MusterError(f"{place} cannot be written: {exc.strerror}", fix) from None
        if stream == "events":
            for line in log_follow.lines(text):
                self.story.event(line)
        elif stream == "metrics":
            for line in log_follow.lines(text):
                self.story.metric(line)
        elif stream == "log" and self.pattern:
            self._parse_log(text)

    def _news(self, stream: str, text: str) -> str:
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
                number = _number(value)
                if number is not None:
                    line[key] = int(number) if key == "step" else number
            if isinstance(line.get("step"), int) and line["step"] != self.story.last.get("step"):
                files.append_json(self.folder / "metrics.jsonl", line)
                self.story.metric(line)

    def _unreachable(self, node: str, error: MusterError) -> None:
        """Note that a node gives no answer. The job may go on there: only the nodes themselves say how it goes."""
        if node not in self.lost_since:
            self.lost_since[node] = time.monotonic()
            self.event("node_silent", node=node, detail=str(error))
            self.progress.say(f"{node} does not answer: {error.message}")

    def _revive(self, node: str) -> None:
        """Start the units of a node again when their supervisor is gone without having ended them."""
        dead = [unit for unit, status in self.units[node].items() if not status["alive"] and status["exit"] is None]
        if not dead or self.lost >= self.job.lost_budget:
            return
        self.lost += 1
        self.event("node_lost", node=node, detail=f"{' and '.join(dead)} of the run are gone")
        self.progress.say(f"{node}: {' and '.join(dead)} gone, starting again")
        try:
            self.restart(self.remotes[node])
        except MusterError as exc:
            self.progress.say(f"{node}: not started again: {exc}")
        self.revived_at[node] = time.monotonic()
        self.units[node] = {}

    def _verdict(self) -> Outcome | None:
        """Return the outcome when the run has ended or must end."""
        ends = {node: status["agent"]["exit"] for node, status in self.units.items() if status.get("agent")}
        ended = {node: end for node, end in ends.items() if end is not None}
        fault = self._ended_badly(ended) or self._over_budget()
        if fault:
            return fault
        first = next(iter(self.remotes))
        deciding = [first] if self.job.launcher == "mpi" else list(self.remotes)
        if all(node in ended for node in deciding):
            return Outcome("succeeded", 0, "succeeded", "all ranks ended with exit code 0")
        return None

    def _ended_badly(self, ended: t.Mapping[str, t.Mapping[str, t.Any]]) -> Outcome | None:
        bad = [(end["at"], node, end) for node, end in ended.items() if end["exit_code"] != 0]
        if not bad:
            return None
        _unused, node, end = min(bad, key=lambda item: item[0])
        if end["cause"] == "cancelled":
            return Outcome("cancelled", end["exit_code"], "cancelled", f"stopped on {node}", node)
        failure = self.story.attempts[-1].first_failure if self.story.attempts else None
        where = failure[2] if failure else node
        code = failure[1] if failure and end["cause"] == "crash" else end["exit_code"]
        outcome = "lost" if end["cause"] in ("node_lost", "rendezvous_unreachable") else "failed"
        return Outcome(outcome, code, end["cause"], _explain(end["cause"], where, code), where)

    def _over_budget(self) -> Outcome | None:
        allowed = self.job.restart
        patience = allowed.wait_s if allowed.on_lost_node == "wait" else _SILENT_S
        silent = [node for node, since in self.lost_since.items() if time.monotonic() - since > patience]
        if silent and len(self.lost_since) < len(self.remotes):
            return Outcome("lost", 1, "node_lost", f"{silent[0]} did not answer for {patience} s", silent[0])
        if silent:
            raise MusterError(
                f"none of the {len(self.remotes)} nodes answered for {patience} s",
                "The job may go on: the same command follows it",
            )
        dead = [
            n for n, units in self.units.items() if any(not u["alive"] and u["exit"] is None for u in units.values())
        ]
        if dead and self.lost >= self.job.lost_budget:
            return Outcome("lost", 1, "node_lost", f"{dead[0]} was lost, restart.max_lost_nodes is spent", dead[0])
        if self.story.crashes > allowed.max_crashes and self.job.launcher in TORCHRUN_FAMILY:
            failure = next(item.first_failure for item in reversed(self.story.attempts) if item.first_failure)
            return Outcome("failed", failure[1], "crash", _explain("crash", failure[2], failure[1]), failure[2])
        return None

    def _drill_if_due(self) -> None:
        if not self.drill or self.drilled_at is not None or not drills.due(self.drill, self.story, log_follow.now()):
            return
        node = t.cast(str, self.drill.node)
        try:
            values = {"target": self.drill.target, "rank": self.drill.rank}
            answer = self.remotes[node].call("kill", run_id=self.run_id, **values)
        except MusterError:
            # It is tried again with the next news.
            return
        if not answer["killed"]:
            return
        self.drilled_at = float(answer["at"])
        what = f"rank {self.drill.rank}" if self.drill.target == "worker" else self.drill.target
        line = {"at": self.drilled_at, "kind": "drill", "node": node, "detail": f"killed {what}"}
        files.append_json(self.folder / "events.jsonl", line)
        self.story.event(line)
        self.progress.say(f"drill: killed {what} on {node} at step {int(self.story.last.get('step', 0))}")

    def _tell(self) -> None:
        values = self.state()
        self.progress.show(values)
        attempts = self.story.attempts
        new_attempt = len(attempts) > self._shown_attempts and attempts[-1].first_step is not None
        if new_attempt or time.monotonic() - self._said_at > _SAY_EVERY_S:
            self._said_at = time.monotonic()
            if new_attempt:
                self._shown_attempts = len(attempts)
            self.progress.say(describe(values))

    def state(self) -> dict[str, t.Any]:
        """Return where the run is: nodes that run, ranks, step, loss, speed, checkpoint, restarts."""
        last = self.story.last
        alive = [node for node, units in self.units.items() if units.get("agent", {}).get("alive")]
        return {
            "run_id": self.run_id,
            "nodes": len(set(alive) - set(self.lost_since)),
            "nodes_asked": len(self.remotes),
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
        if force or time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            self.save(self)


def describe(values: t.Mapping[str, t.Any]) -> str:
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


def _explain(cause: str, node: str, code: int) -> str:
    texts = {
        "crash": f"a rank on {node} ended with exit code {code} and restart.max_crashes is spent",
        "fatal_exit_code": f"a rank on {node} ended with exit code {code}, which restart.fatal_exit_codes names",
        "timeout": "timeout_s has passed",
        "node_lost": f"{node} was lost, restart.max_lost_nodes is spent",
        "port_taken": f"the rendezvous port on {node} is taken",
        "rendezvous_unreachable": f"{node} could not reach the rendezvous store",
    }
    return texts.get(cause, f"{node}: {cause} (exit code {code})")


def tail(place: pathlib.Path) -> str:
    """Return the end of a kept log, empty when there is none."""
    try:
        with open(place, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str | None) -> float | None:
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
