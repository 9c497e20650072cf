# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of a run: its attempts, steps and losses, folded line by line from its events and metrics.

The run record and the report both take what they say from here. Events and metrics come from several nodes; a metric
belongs to the newest attempt that had started before it.
"""

from __future__ import annotations

import collections
import itertools
import time
import typing as t

from . import hang, printed_steps, resumes, stall
from .following import Following
from .quantity import parse_finite
from .run_attempt import Attempt, Notice, RankExit
from .step_readings import StepReadings
from .stored_checkpoints import LeftFiles, StoredCheckpoint, StoredCheckpoints, describe_unstored

Line = t.Mapping[str, object]
# How far the clock of a node may be ahead of ours.
_AHEAD_S = 86400.0
# No figure of a run is larger, and an integer of hundreds of digits cannot be shown.
_LARGEST = 1e300
# So many lines of metrics can come before the event that their attempt has begun.
_RECENT_LINES = 256
# Exit codes above it are those of processes that a signal ended.
_SIGNALS = 128
_STANDING = ("rank_stands", "rank_moves", "hang", "hang_over")


class RunHistory:
    """What happened in a run so far. Feed it the lines of its events and metrics, those of its nodes in any order.

    :ivar attempts: ordered by time. :ivar checkpoint: (step, path) of the newest one. :ivar last: figures of the last
        step. :ivar faults: (time, cause, node) of each. :ivar set_back: when the run lost its placement. :ivar notices:
        that machines will be taken away. :ivar starts: numbers of the first attempts of its starts, each with the nodes
        that it was begun on, as far as its event says. :ivar not_resumed: attempts that were reported as not resumed.
        :ivar uneven: attempt -> how its ranks began at different steps.
    :ivar nan_since: the first step since when the loss is not a number, None while its last value is one.
    :ivar pace_meter: measures how fast its steps come, over all attempts.
    :ivar transport: (gang, rank) -> the event that says what carried its traffic. :ivar versions: node -> package ->
        version. :ivar devices: (node, rank) -> the event that says which GPUs and RDMA devices it has; rank None: all
        of a host's.
    :ivar steps_read: whose printed steps are read, where that was to be found out: ``preset``, ``rank``, ``node``, and
        ``problem``, why they are not those of the run, or its loss is not that of one rank.
    :ivar late: (first step, last step, seconds) of those whose lines were read after the fact, and by how much at most.
    :ivar readings: when its steps were made and its checkpoints saved. :ivar pauses: (from, until) of each time in
        which it had ended and was not continued yet.
    :ivar left: what nodes have in their folders at the end, and when logs and metrics were removed here.
    :ivar stored: what its nodes have stored of its checkpoints.
    :ivar layout: ``layout`` of the newest one and ``layout_by``, by what it was recognised, and ``step_by``, how its
        step was estimated; empty where the program reported it by itself.
    """

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._saved: tuple[int, str] | None = None
        # When, and in which attempt, the newest checkpoint was reported, and the newest step made.
        self._saved_in: tuple[Attempt, float] | None = None
        self._stepped_in: tuple[Attempt, float] | None = None
        self.layout: dict[str, str] = {}
        self._missing: Line | None = None
        self.left = LeftFiles()
        self.last: dict[str, float] = {}
        self.nan_since: int | None = None
        self.faults: list[tuple[float, str, str | None]] = []
        self.set_back: list[float] = []
        self.notices: list[Notice] = []
        self.transport: dict[tuple[str, int], Line] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.devices: dict[tuple[str, int | None], Line] = {}
        self.base = 1
        self.starts: dict[int, dict[str, Line]] = {}
        self.not_resumed: set[int] = set()
        self.uneven: dict[int, str] = {}
        self.pace_meter = stall.PaceMeter()
        self.stored = StoredCheckpoints()
        self.steps_read: dict[str, object] = {}
        self.late: tuple[int, int, float] | None = None
        # Of the starts, those by which a run that had succeeded was continued: they are no restarts.
        self.extensions: set[int] = set()
        self._succeeded = False
        self.readings = StepReadings()
        self.following = Following()
        # From its end until it was continued, of each of its starts but the last.
        self.pauses: list[tuple[float, float]] = []
        self._ended_at: float | None = None
        self._pending: list[Line] = []
        # The newest lines of metrics: an attempt that becomes known late takes those of its time back.
        self._recent: collections.deque[Line] = collections.deque(maxlen=_RECENT_LINES)

    def event(self, line: Line) -> None:
        """Take in one line of events.jsonl."""
        kind, at = line.get("kind"), parse_time(line.get("at"))
        if at is None:
            return
        self._take_evidence(line)
        self.following.take(line, at)
        self.steps_read |= printed_steps.read_event(line)
        if kind in ("worker_started", "worker_exit"):
            self._add_rank(line, at)
        elif kind in ("submitted", "not_resumed", "uneven_resume", "ended"):
            self._note_start(line, at)
        elif kind in ("node_not_ready", "cancelled", "container_killed", *_STANDING):
            self._note_state(line, at)
        elif kind == "pod_deleted":
            self._add_deletion(line, at)
        elif kind in ("checkpoint_stored", "checkpoint_not_stored"):
            self.stored.take(line, at)
        elif kind in ("checkpoint_missing", "checkpoint_there"):
            self._missing = line if kind == "checkpoint_missing" else None
        elif kind in ("no_checkpoint", "checkpoint_unreported", "checkpoint_half_saved", "pruned"):
            self.left.take(line, at)
        elif kind == "notice":
            self.notices.append(Notice(at, str(line.get("node")), str(line.get("detail"))))
            self._give_notices()
        else:
            self._add_loss(line, at)

    def _note_start(self, line: Line, at: float) -> None:
        """Take in that a start began, by which budgets begin anew, did not resume, or how it ended."""
        number = int(parse_finite(line.get("attempt")) or 0)
        if line.get("kind") == "ended":
            self._succeeded, self._ended_at = line.get("detail") == "succeeded", at
            return
        if line.get("kind") == "not_resumed":
            self.not_resumed.add(number)
            return
        if line.get("kind") == "uneven_resume":
            self.uneven[number] = str(line.get("detail"))
            self.not_resumed.add(number)
            return
        self.base = number or 1
        self.extensions |= {self.base} if self._succeeded else set()
        self._succeeded = False
        if self._ended_at is not None:
            self.pauses.append((self._ended_at, at))
            self._ended_at = None
        nodes = line.get("nodes")
        given = [item for item in nodes if isinstance(item, dict)] if isinstance(nodes, list) else []
        self.starts[self.base] = {item["id"]: item for item in given if isinstance(item.get("id"), str)}

    def _give_notices(self) -> None:
        """Give each attempt the first notice of its time; attempts may become known after their notices."""
        for attempt in self.attempts:
            attempt.notice = None
        for notice in reversed(self.notices):
            attempt_then = self.attempt_at(notice.at)
            if attempt_then is not None:
                attempt_then.notice = notice

    def _note_state(self, line: Line, at: float) -> None:
        """Note at the attempt of that time a node that is not ready, a killed container, a cancel, a standing rank."""
        attempt = self.attempt_at(at)
        if line.get("kind") == "cancelled":
            self._ended_at = at
        if attempt is None:
            return
        if line.get("kind") in _STANDING:
            attempt.take_standing(line, at)
            return
        if line.get("kind") == "cancelled":
            attempt.cancelled_at = at
        elif line.get("kind") == "container_killed":
            code = int(parse_finite(line.get("exit_code")) or 0)
            attempt.killed = attempt.killed or RankExit(at, code, str(line.get("node")))
        else:
            attempt.not_ready = attempt.not_ready or (at, _node_of(line))

    def _add_loss(self, line: Line, at: float) -> None:
        """Add what the run lost by a drill, a lost node or its queue; other events are none."""
        kind = line.get("kind")
        if kind == "drill":
            self._add_fault(at, "drill", _node_of(line))
        elif kind == "hang_ended":
            self._add_fault(at, "hang", _node_of(line))
        elif kind == "node_lost":
            self._add_fault(at, "node_lost", _node_of(line))
        elif kind == "agent_restart" and line.get("detail") == "node_lost":
            # A launcher that was not killed ended because of another node, which it cannot name.
            code = parse_finite(line.get("exit_code"))
            ended = self.attempt_at(at)
            if ended is not None and ended.fault is None:
                ended.launcher_killed = code is not None and code > _SIGNALS
            self._add_fault(at, "node_lost", _node_of(line) if code is None or code > _SIGNALS else None)
        elif kind == "node_silent":
            attempt = self.attempt_at(at)
            if attempt is not None:
                attempt.silent = attempt.silent or _node_of(line)
        elif kind == "set_back":
            # Its queue preempted or suspended it: no fault of the program or of a node.
            self._add_fault(at, "preempted" if line.get("cause") == "preempted" else "suspended", None)
            self.set_back.append(at)

    def _add_deletion(self, line: Line, at: float) -> None:
        """Add a pod that was deleted. One that names its attempt was deleted before anything of that had failed."""
        number = line.get("attempt")
        named = next((attempt for attempt in self.attempts if attempt.n == number), None)
        attempt = named or self.attempt_at(at)
        if attempt is not None and attempt.fault is None and (named or attempt.cause is None):
            self.faults.append((at, "pod_deleted", _node_of(line)))
            attempt.fault = self.faults[-1][1:]
            attempt.fault_pod = str(line["pod"]) if line.get("pod") else None

    def _take_evidence(self, line: Line) -> None:
        """Take in what carried the traffic of a rank, or which versions and devices a node has."""
        rank, found = line.get("rank"), line.get("versions")
        if line.get("kind") == "transport" and isinstance(rank, int):
            self.transport[str(line.get("gang")), rank] = line
        elif line.get("kind") in ("versions", "pod_ready") and isinstance(found, dict):
            versions = {str(name): str(version) for name, version in found.items() if version}
            self.versions[str(line.get("node"))] = versions
            if "gpus" in line:
                self.devices[str(line.get("node")), rank if isinstance(rank, int) else None] = line

    def _add_rank(self, line: Line, at: float) -> None:
        rank = line.get("rank")
        if not isinstance(rank, int):
            return
        started, node = line.get("kind") == "worker_started", str(line.get("node"))
        attempt = self._attempt_of(line, rank, started, at)
        if not started:
            code, stopped = int(parse_finite(line.get("exit_code")) or 0), bool(line.get("stopped"))
            attempt.exits[rank] = RankExit(at, code, node, stopped)
            return
        if at < attempt.started_at:
            attempt.started_at = at
            self._sort()
        self._give_notices()
        self._move_steps(attempt)
        attempt.ranks[rank] = node
        attempt.pods[rank] = str(line.get("pod") or "")
        world_size = line.get("world_size")
        attempt.world_size = world_size if isinstance(world_size, int) else None
        pending, self._pending = self._pending, []
        for metric in pending:
            self.metric(metric)

    def metric(self, line: Line) -> bool:
        """Take in one line of metrics.jsonl (or one parsed by the job's step pattern); return whether it has a time."""
        at = parse_time(line.get("at"))
        if at is None:
            return False
        attempt = self.attempt_at(at)
        if attempt is None:
            self._pending.append(line)
            return True
        self._recent.append(line)
        step, saved, resumed = (read_count(line, key) for key in ("step", "checkpoint_step", "resumed_from_step"))
        if step is not None:
            late_s = parse_finite(line.get("late_s")) or 0.0
            self.readings.add_step(at, step, late_s)
            self._take_step(attempt, at, step, line)
            if late_s:
                self._note_late(step, late_s)
        if saved is not None:
            self.readings.add_checkpoint(at)
            if _is_newest(attempt, at, self._saved_in):
                self._saved, self._saved_in = (saved, str(line.get("path", ""))), (attempt, at)
                self.layout = {key: str(line[key]) for key in ("layout", "layout_by", "step_by") if line.get(key)}
            known = attempt.saved_steps or (saved, saved)
            attempt.saved_steps = min(known[0], saved), max(known[1], saved)
        if resumed is not None:
            attempt.resumed_from = resumed
        return True

    def _take_step(self, attempt: Attempt, at: float, step: int, line: Line) -> None:
        """Take in a step by its own time: lines of a node that are read late replace none that was made after them."""
        is_first, is_late = attempt.first_step_at is None, bool(line.get("late_s"))
        if is_first or is_late:
            self.pace_meter.begin()
        if attempt.first_step_at is None or at < attempt.first_step_at:
            attempt.first_step, attempt.first_step_at, attempt.is_first_late = step, at, is_late
        if attempt.last_step_at is None or at >= attempt.last_step_at:
            attempt.last_step, attempt.last_step_at, attempt.is_last_late = step, at, is_late
        if not _is_newest(attempt, at, self._stepped_in):
            return
        self._stepped_in = attempt, at
        if not is_late:
            self.pace_meter.add(at, step)
        # Of programs that print figures more seldom than steps, the last ones stay.
        figures = {key: value for key, value in line.items() if key != "late_s" and _is_figure(value)}
        before = {"loss": self.last["loss"]} if not is_first and "loss" in self.last else {}
        self.last = {**before, **figures}
        if line.get("loss") is not None:
            is_number = parse_finite(line["loss"]) is not None
            self.nan_since = None if is_number else (step if self.nan_since is None else self.nan_since)

    def _note_late(self, step: int, late_s: float) -> None:
        """Note that it is not known when a step was made."""
        said = printed_steps.describe_late(*self.late) if self.late else None
        first, last, longest = self.late or (step, step, late_s)
        self.late = min(first, step), max(last, step), max(longest, late_s)
        if self.steps_read.get("problem") == said:
            self.steps_read["problem"] = printed_steps.describe_late(*self.late)

    def _move_steps(self, attempt: Attempt) -> None:
        """Give an attempt the steps of its time that were taken for those of the one before.

        What a rank prints can be read before the event that it has started: they are files, or lines, of their own.
        """
        index = self.attempts.index(attempt)
        early, late = self._split_recent(attempt.started_at)
        if index == 0 or attempt.first_step is not None or not late:
            return
        before, steps = self.attempts[index - 1], _with_number(early, "step")
        if (before.first_step_at or 0.0) >= attempt.started_at:
            before.first_step = before.first_step_at = before.last_step = before.last_step_at = None
        elif steps:
            before.last_step_at, before.last_step = max(
                (parse_time(made.get("at")) or 0.0, step) for step, made in steps
            )
        if _with_number(late, "resumed_from_step"):
            resumed = _with_number(early, "resumed_from_step")
            before.resumed_from = resumed[-1][0] if resumed else None
        self._recent.clear()
        self._recent.extend(early)
        for line in late:
            self.metric(line)

    def _split_recent(self, at: float) -> tuple[list[Line], list[Line]]:
        """Return the newest lines of metrics from before a time, and those from then on."""
        early: list[Line] = []
        late: list[Line] = []
        for line in self._recent:
            (late if (parse_time(line.get("at")) or 0.0) >= at else early).append(line)
        return early, late

    def _attempt_of(self, line: Line, rank: int, started: bool, at: float) -> Attempt:
        """Return the attempt that a rank belongs to: its gang's, else the one with the number that it counted.

        Counts can differ: a rank that was stopped before it could count is behind from then on. A gang's name can come
        again, but not while the rank of before is still there.
        """
        gang, number = str(line.get("gang") or "") or None, int(parse_finite(line.get("attempt")) or 1)
        for attempt in reversed(self.attempts):
            same = attempt.gang == gang if gang else attempt.n == number
            again = started and rank in attempt.ranks and any(end.at < at for end in attempt.exits.values())
            if same and not again:
                return attempt
        attempt = Attempt(number, at, gang, counted=number)
        self.attempts.append(attempt)
        self._sort()
        return attempt

    def _sort(self) -> None:
        """Order attempts by time and number them so that each is above the one before, whatever its ranks counted."""
        self.attempts.sort(key=lambda attempt: attempt.started_at)
        before = 0
        for attempt in self.attempts:
            attempt.n = before = max(attempt.counted, before + 1)
            attempt.followed = attempt is not self.attempts[-1]
        for attempt, later in itertools.pairwise(self.attempts):
            attempt.continued = self.begins_start(later)

    def attempt_at(self, at: float) -> Attempt | None:
        """Return the newest attempt that had started at a time."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.started_at <= at), None)

    def _add_fault(self, at: float, cause: str, node: str | None) -> None:
        self.faults.append((at, cause, node))
        attempt = self.attempt_at(at)
        # A drill that loses a node stays a drill: the cause is what was done, not what followed.
        if attempt and (attempt.fault is None or attempt.fault[0] != "drill"):
            # Of several words for one loss, the one that knows the node.
            known = attempt.fault[1] if attempt.fault and attempt.fault[0] == cause else None
            attempt.fault = (cause, node or known)

    @property
    def startup_s(self) -> float | None:
        """Return the longest time that an attempt took to its first step, None before there is any."""
        firsts = [(item.first_step_at, item.started_at) for item in self.attempts if not item.is_first_late]
        return max((first - begun for first, begun in firsts if first is not None), default=None)

    def judge_movement(self, since_s: float) -> stall.Movement:
        """Return whether the newest attempt moves, which made no step for ``since_s`` seconds or since its start."""
        pace = self.pace_meter.read()
        has_pace = bool(pace and self.attempts and self.attempts[-1].last_step != self.attempts[-1].first_step)
        return stall.judge(since_s, pace, None if has_pace else self.startup_s)

    def find_hang(self, since_step_s: float) -> hang.Hang | None:
        """Return the hang of the newest attempt, None where there is none that may be said.

        Where ranks wait for one that does not come, it is said at once, else when the run stands by its own pace.

        :param since_step_s: for how long the run has made no step.
        """
        found = self.attempts[-1].name_hang() if self.attempts else None
        is_said = found is not None and (found.is_certain or self.judge_movement(since_step_s) == "stalled")
        return found if is_said else None

    @property
    def first_step_at(self) -> float | None:
        """Return when the run made its first step."""
        times = [attempt.first_step_at for attempt in self.attempts if attempt.first_step_at is not None]
        return min(times, default=None)

    @property
    def are_steps_known(self) -> bool:
        """Return whether the steps are those of the run: the counter of its program does not begin anew in an epoch."""
        return "went_back" not in self.steps_read

    @property
    def crashes(self) -> int:
        """Return how many attempts of this start a failing or hanging program ended (not drills, not lost nodes)."""
        return sum(attempt.n >= self.base and attempt.cause in ("crash", "hang") for attempt in self.attempts)

    @property
    def lost_nodes(self) -> int:
        """Return how many attempts of this start a lost node ended."""
        return sum(attempt.n >= self.base and attempt.cause == "node_lost" for attempt in self.attempts)

    @property
    def restarts(self) -> int:
        """Return how often the gang began anew; an attempt of which no rank came to start counts, too."""
        last = self.attempts[-1].n if self.attempts else 1
        return last - 1 - sum(number <= last for number in self.extensions)

    def begins_start(self, attempt: Attempt) -> bool:
        """Return whether an attempt is the first one of the run, or of a start that continued it."""
        before = [item.n for item in self.attempts if item.n < attempt.n]
        return not before or any(max(before) < number <= attempt.n for number in self.starts)

    def _extends(self, attempt: Attempt) -> bool:
        """Return whether an attempt is the first one of an extension."""
        before = [item.n for item in self.attempts if item.n < attempt.n]
        return any(max(before, default=0) < number <= attempt.n for number in self.extensions)

    @property
    def is_placed(self) -> bool:
        """Return whether the run, as far as ranks of this start say, has not lost its placement since it had one."""
        newest = self.attempts[-1] if self.attempts and self.attempts[-1].n >= self.base else None
        return newest is not None and newest.started_at > max(self.set_back, default=0.0)

    def unplaced_spans(self) -> list[tuple[float, float]]:
        """Return from when until when the run had no placement after it was set back; spans do not overlap."""
        spans: dict[float, float] = {}
        for at in sorted(self.set_back):
            until = min((item.started_at for item in self.attempts if item.started_at > at), default=float("inf"))
            # Set back again before any rank began: it had no placement in between.
            spans.setdefault(until, at)
        return [(at, until) for until, at in spans.items()]

    def _is_missing(self) -> bool:
        """Return whether the checkpoint that was reported last was not there when its ranks had ended."""
        return bool(self._missing and self._saved == (self._missing.get("checkpoint_step"), self._missing.get("path")))

    @property
    def checkpoint(self) -> tuple[int, str] | None:
        """Return step and path of the newest checkpoint that was reported and, as far as is known, is there."""
        there = self._missing.get("there") if self._missing and self._is_missing() else None
        if isinstance(there, dict):
            return there["step"], there["path"]
        return None if self._is_missing() else self._saved

    @property
    def checkpoint_at(self) -> float | None:
        """Return when the newest checkpoint was reported, None before there is any."""
        return self._saved_in[1] if self._saved_in else None

    def describe_missing(self) -> str:
        """Return that the checkpoint that was reported last is not there, empty where it is."""
        if not self._missing or not self._is_missing():
            return self._describe_empty()
        newest = f"the newest that is there has step {self.checkpoint[0]}" if self.checkpoint else "none of the run is"
        step, path, node, parts = (self._missing.get(key) for key in ("checkpoint_step", "path", "node", "parts"))
        if parts:
            return f"checkpoint {step} is not whole, {newest} (other nodes lack their part of {parts})"
        return f"checkpoint {step} is not there, {newest} (the program reported {path} on {node}, which does not exist)"

    def _describe_empty(self) -> str:
        """Return that no node has a checkpoint although the program reported one without saying where it is."""
        if not self._saved or self._saved[1] or not self.attempts or self.stored.newest(self.left.empty_nodes):
            return ""
        folder = self.left.find_empty(self.attempts[-1].ranks.values(), self.attempts[-1].started_at)
        said = f"checkpoint {self._saved[0]} is not there: the program reported it, and {folder} is empty"
        return said if folder else ""

    def newest_stored(self) -> StoredCheckpoint | None:
        """Return the newest checkpoint of the run that its nodes have stored in its object store."""
        return self.stored.newest(set(self.attempts[-1].ranks.values()) if self.attempts else ())

    def describe_unstored(self, binding: str, ended: bool) -> str:
        """Return that checkpoints of the run are not in its object store, empty where they are.

        :param ended: whether nothing more will be stored; while a run is running, the newest one may be on its way.
        """
        problem = self.stored.problem()
        if problem is None and not ended:
            return ""
        step, estimated = self.checkpoint[0] if self.checkpoint else None, "step_by" in self.layout
        return describe_unstored(binding, step, self.newest_stored(), problem, estimated=estimated)

    def ranks_seen(self) -> int:
        """Return the number of ranks that started in the newest attempt."""
        return len(self.attempts[-1].ranks) if self.attempts else 0

    def ranks_running(self, pods: t.Container[str] | None = None) -> int:
        """Return how many ranks of the newest attempt of this start are running, as far as their nodes have said.

        None is after the attempt lost its placement, none on a node that it lost, and none in a pod that does not run.

        :param pods: the names of its pods that are running, None where it has none.
        """
        last = self.attempts[-1] if self.attempts and self.attempts[-1].n >= self.base else None
        if last is None or not self.is_placed:
            return 0
        lost = last.fault[1] if last.fault and last.fault[0] == "node_lost" else None
        gone = {rank for rank, pod in last.pods.items() if pods is not None and pod and pod not in pods}
        return sum(rank not in {*last.exits, *gone} and node != lost for rank, node in last.ranks.items())

    def find_sharing(self, ranks_per_pod: int) -> tuple[int, int] | None:
        """Return (pods, machines) of the newest attempt where pods of it share machines, else None."""
        places = list(self.attempts[-1].ranks.values()) if self.attempts else []
        pods, machines = -(-len(places) // max(1, ranks_per_pod)), len(set(places))
        return (pods, machines) if machines < pods else None

    def nodes_of(self, attempt: Attempt) -> dict[str, Line]:
        """Return the nodes of an attempt by name, each with what its start says of it.

        While not all of its ranks are known, they are those that its start names: a node that was lost before anything
        of it was read was there all the same.
        """
        begun = self.starts.get(max((n for n in self.starts if n <= attempt.n), default=0), {})
        is_whole = attempt.world_size is not None and len(attempt.ranks) >= attempt.world_size
        names = attempt.node_names if is_whole else sorted({*attempt.node_names, *begun})
        return {name: begun.get(name, {}) for name in names}

    def losses(self) -> tuple[int | None, float | None]:
        """Return the sums of what the restarts cost: (steps done again, seconds). What is not known is None."""
        pairs = list(zip(resumes.restart_costs(self.attempts), itertools.pairwise(self.attempts), strict=True))
        pairs = [(cost, gap) for cost, gap in pairs if not self._extends(gap[1])]
        costs = [cost for cost, _gap in pairs]
        if self.following.describe_unread(self.attempts):
            return None, None
        known = not costs or (self.are_steps_known and self.following.has_steps_of(self.attempts))
        steps = resumes.total_steps_lost(costs) if known else None
        is_dated = not any(before.is_last_late or after.is_first_late for _cost, (before, after) in pairs)
        return steps, resumes.total_seconds_lost(costs) if is_dated else None

    def judge_resumes(self, interval_steps: int | None, *, anew: bool = False) -> dict[int, resumes.Resume]:
        """Return by attempt whether it resumed. ``anew``: each start of the run begins without a checkpoint."""
        numbers = {item.n for item in self.attempts}
        uneven = {n: resumes.describe_uneven(how) for n, how in self.uneven.items() if n in numbers}
        if not self.are_steps_known:
            return {attempt.n: resumes.Resume(None) for attempt in self.attempts} | uneven
        firsts = [next((at for at, item in enumerate(self.attempts) if item.n >= n), -1) for n in self.starts]
        judged = resumes.judge_resumes(self.attempts, interval_steps, firsts if anew else ())
        return {attempt.n: resume for attempt, resume in zip(self.attempts, judged, strict=True)} | uneven


def fold(events: t.Iterable[Line], metrics: t.Iterable[Line]) -> RunHistory:
    """Return the history that a run's files tell."""
    history = RunHistory()
    for line in events:
        history.event(line)
    for line in metrics:
        history.metric(line)
    return history


def parse_time(value: object) -> float | None:
    """Return a time that a program or a node wrote; None for milliseconds, and for a day ahead of our clock."""
    number = parse_finite(value)
    return number if number is not None and 0 <= number <= time.time() + _AHEAD_S else None


def _is_newest(attempt: Attempt, at: float, known: tuple[Attempt, float] | None) -> bool:
    """Return whether nothing that is known came after a time in an attempt, whenever it was read."""
    return known is None or (attempt.started_at, at) >= (known[0].started_at, known[1])


def _node_of(line: Line) -> str | None:
    node = line.get("node")
    return node if isinstance(node, str) else None


def _with_number(lines: t.Iterable[Line], name: str) -> list[tuple[int, Line]]:
    return [(value, line) for line in lines if isinstance(value := line.get(name), int)]


def read_count(line: Line, key: str) -> int | None:
    """Return a number of steps that a line says; some programs count an evaluation before the first one as -1."""
    value = line.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_figure(value: object) -> t.TypeGuard[float]:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGEST)
