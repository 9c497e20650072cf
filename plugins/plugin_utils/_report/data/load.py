# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a run's folder into one value: run.json, events.jsonl, metrics.jsonl, usage.jsonl, fabric.json,
site.json and logs/.

Every file but run.json may be missing, empty or cut off; a note says which.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

from ....module_utils._model.drill import describe_no_step
from ....module_utils._model.error_line import without_stop
from ....module_utils._model.errors import InputError
from ....module_utils._model.run_attempt import Attempt
from ....module_utils._model.run_history import RunHistory, fold
from . import parsing

Line = t.Mapping[str, object]

TAIL_BYTES = 64 * 1024
TAIL_LINES = 14
MAX_LOGS = 400
_RATE = "_per_s"
# Ends that the job itself asks for, by the run's cause.
STOPS = {"nan": "job.stop_on.nan", "stalled": "job.stop_on.stalled_s", "hang": "job.restart.on_hang"}
_NO_LOGS = "logs: none were collected"
_NO_METRICS = "metrics.jsonl is missing"
_OWN_KEYS = (
    "at",
    "step",
    "loss",
    "attempt",
    "rank",
    "world_size",
    "checkpoint_step",
    "resumed_from_step",
    "printed",
    "late_s",
    "layout",
    "layout_by",
    "step_by",
)


@dataclasses.dataclass(frozen=True, slots=True)
class RunEvent:
    """An event to mark on the timeline: ``at`` in Unix seconds; ``kind`` as written (worker_exit, drill, ...).

    ``exit_code`` is 128 + the signal for a process that a signal ended.
    """

    at: float
    kind: str
    node: str | None
    exit_code: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StepRecord:
    """One line of training figures; ``throughput`` in the unit named by :attr:`RunFolder.unit`, ``extras`` all others.

    ``at`` is None where it is not known when the step was made.

    :ivar has_bad_loss: the program wrote a loss that is not a number (NaN, infinite); ``loss`` is None then.
    """

    at: float | None
    step: int
    loss: float | None
    throughput: float | None
    has_bad_loss: bool = False
    extras: t.Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that the program says it saved. ``step_by``: how its step was estimated, None where it is known."""

    at: float | None
    step: int
    path: str | None
    step_by: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """The metrics that one start of the program wrote, within one attempt.

    ``resumed_from`` is 0 for a fresh start and None when the program did not report it.
    """

    at: float | None
    resumed_from: int | None
    world_size: int | None
    steps: tuple[StepRecord, ...]
    checkpoints: tuple[Checkpoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """One sample of a node: percent of all cores, GiB, percent of all GPUs (None without GPUs)."""

    at: float
    node: str
    cpu_percent: float | None
    memory_gib: float | None
    gpu_percent: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Log:
    """A log file: path below the run's folder, size, last lines, and the last line that looks like an error."""

    path: str
    size: int
    tail: tuple[str, ...]
    error: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SitePhase:
    """A step of the playbook site that led to the run, and how long it took."""

    name: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class RunFolder:
    """Everything known about one run. ``record`` is run.json; ``notes`` say what was missing or unreadable.

    ``history`` is folded from the events and the metrics as the run record's was.
    """

    name: str
    record: Line
    events: tuple[RunEvent, ...] = ()
    segments: tuple[Segment, ...] = ()
    unit: str | None = None
    usage: tuple[Usage, ...] = ()
    fabric: Line | None = None
    logs: tuple[Log, ...] = ()
    notes: tuple[str, ...] = ()
    history: RunHistory = dataclasses.field(default_factory=RunHistory)
    site: tuple[SitePhase, ...] = ()
    tracking: Line | None = None
    monitoring: Line | None = None


def load_run(folder: pathlib.Path) -> RunFolder:
    """Return the run kept in ``folder``.

    :raises InputError: the folder or its run.json is not there (everything else becomes a note).
    """
    if not (folder / "run.json").is_file():
        raise InputError("run", f"no run.json in {folder}", "Name a folder <state>/<cluster>/runs/<run_id>")
    notes: list[str] = []
    record = _read_document(folder / "run.json", notes)
    metrics, events = (_read_lines(folder / name, notes) for name in ("metrics.jsonl", "events.jsonl"))
    run = build_run_folder(parsing.read_text(folder.resolve().name) or "run", record or {}, events, metrics, notes)
    run = dataclasses.replace(
        run,
        usage=parse_usage(_read_lines(folder / "usage.jsonl", notes)),
        fabric=_read_document(folder / "fabric.json", notes),
        tracking=_read_document(folder / "tracking.json", notes),
        monitoring=_read_document(folder / "monitoring.json", notes),
        site=parse_site(_read_document(folder / "site.json", notes) or {}),
        logs=_read_logs(folder, notes, stopped=_was_stopped(record or {})),
    )
    if unread := _describe_unread(record or {}, metrics):
        notes = [unread, *(note for note in notes if note != _NO_METRICS)]
    pruned_at = parsing.read_text((record or {}).get("pruned_at"))
    if pruned_at:
        # What lacks of it was there.
        lacking = {_NO_METRICS, "usage.jsonl is missing", _NO_LOGS}
        removed = f"metrics, logs and reports were removed by prune on {pruned_at[:10]}"
        notes = [*(note for note in notes if note not in lacking), removed]
    return dataclasses.replace(run, notes=tuple(notes))


def _describe_unread(record: Line, metrics: t.Sequence[Line]) -> str:
    """Return why the figures of a program's steps are not known, where no step of it was ever read; else nothing."""
    attempts = parsing.read_rows(record.get("attempts"))
    is_read = any(item.get("last_step") is not None for item in attempts) or any("step" in line for line in metrics)
    if not attempts or is_read or not record.get("ended_at"):
        return ""
    wanted = parsing.read_mapping(parsing.read_mapping(record.get("job")).get("metrics")).get("preset")
    problem, fix = describe_no_step(parsing.read_text(wanted))
    return f"{problem}: its steps, loss, throughput and useful time are not known. {fix}"


def build_run_folder(
    name: str, record: Line, events: t.Sequence[Line], metrics: t.Sequence[Line], notes: list[str]
) -> RunFolder:
    """Return a run of which the record, the events and the metrics are known; what is wrong is added to ``notes``."""
    history = fold(events, metrics)
    segments, unit = parse_metrics(metrics, notes, history)
    return RunFolder(name, record, parse_events(events), segments, unit, history=history)


def parse_json(data: str) -> object:
    """Return the JSON value of ``data``, or None when it is none (or nested too deep, or a number too long)."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def parse_lines(data: str, name: str, notes: list[str]) -> list[Line]:
    """Return the objects of JSON lines; a torn last line and unreadable lines are left out and noted."""
    lines = data.split("\n")
    objects: list[Line] = []
    bad = 0
    for line in lines:
        value = parse_json(line) if line.strip() else None
        if isinstance(value, dict):
            objects.append(value)
        elif line.strip():
            bad += 1
    if bad and lines[-1].strip() and not isinstance(parse_json(lines[-1]), dict):
        bad -= 1
        notes.append(f"{name}: the last line is cut off and was left out")
    if bad:
        notes.append(f"{name}: {bad} unreadable line{'s' if bad > 1 else ''} left out")
    if not objects and not bad:
        notes.append(f"{name} is empty")
    return objects


def parse_events(lines: t.Iterable[Line]) -> tuple[RunEvent, ...]:
    """Return the events in order of time; a line without time or kind is left out."""
    events = []
    for line in lines:
        at, kind = parsing.read_time(line.get("at")), parsing.read_text(line.get("kind"), 40)
        if at is not None and kind:
            node, code = parsing.read_text(line.get("node"), 80), parsing.read_integer(line.get("exit_code"))
            events.append(RunEvent(at, kind, node, code))
    return tuple(sorted(events, key=lambda event: event.at))


def parse_site(document: Line) -> tuple[SitePhase, ...]:
    """Return the steps of the playbook site that had ended when the run was recorded."""
    rows = parsing.read_rows(document.get("phases"))
    read = [(parsing.read_text(row.get("name"), 40), parsing.read_number(row.get("seconds"))) for row in rows]
    return tuple(SitePhase(name, seconds) for name, seconds in read if name and seconds is not None)


def parse_usage(lines: t.Iterable[Line]) -> tuple[Usage, ...]:
    """Return the samples of all nodes in order of time."""
    samples = []
    for line in lines:
        at, node = parsing.read_time(line.get("at")), parsing.read_text(line.get("node"), 80)
        if at is not None and node:
            percentages = (parsing.read_number(line.get(key)) for key in ("cpu_percent", "memory_gib", "gpu_percent"))
            samples.append(Usage(at, node, *percentages))
    return tuple(sorted(samples, key=lambda sample: sample.at))


def parse_metrics(
    lines: t.Iterable[Line], notes: list[str], history: RunHistory | None = None
) -> tuple[tuple[Segment, ...], str | None]:
    """Return the segments in order, and the unit of their throughput (``tokens_per_s``, ``images_per_s``) or None.

    A segment starts with each attempt, with a ``resumed_from_step`` line, and where the step falls back without one.
    Other ranks of the same attempt may say later where they resumed.
    """
    groups = list(_split_metrics(_by_time(lines), history))
    step_lines = [line for group in groups for line in group if _read_step(line) is not None]
    keys = dict.fromkeys(key for line in step_lines for key in line if key.endswith(_RATE))
    unit = next((key for key in ("tokens_per_s", "samples_per_s", *keys) if key in keys), None)
    losses = [line.get("loss") for line in step_lines]
    bad_losses = sum(loss is not None and parsing.read_number(loss) is None for loss in losses)
    if bad_losses:
        notes.append(f"metrics.jsonl: the loss is not a number (NaN or infinite) in {bad_losses} lines")
    return tuple(_build_segment(group, unit) for group in groups), unit


def _by_time(lines: t.Iterable[Line]) -> list[Line]:
    """Return lines in the order of their times, as those of a node may have been read late; one without stays put."""
    timed: list[tuple[float, Line]] = []
    for line in lines:
        at = parsing.read_time(line.get("at"))
        timed.append((at if at is not None else timed[-1][0] if timed else 0.0, line))
    return [line for _at, line in sorted(timed, key=lambda item: item[0])]


def _split_metrics(lines: t.Sequence[Line], history: RunHistory | None) -> t.Iterator[list[Line]]:
    """Return the lines of each segment."""
    group: list[Line] = []
    attempt: Attempt | None = None
    last_step: int | None = None
    for number, line in enumerate(lines):
        at, step = parsing.read_time(line.get("at")), _read_step(line)
        newest = (history.attempt_at(at) if history and at is not None else None) or attempt
        # Several lines of one step are of one attempt, where attempts are known.
        falls_back = step is not None and last_step is not None and step <= last_step - (newest is not None)
        resumes = "resumed_from_step" in line and not (newest and _is_said(line, group))
        if resumes and newest is not None and newest is attempt and _is_late(line, group, lines[number + 1 :]):
            group.insert(0, line)
            continue
        if group and (resumes or falls_back or newest is not attempt):
            yield group
            group, last_step = [], None
        attempt, last_step = newest, last_step if step is None else step
        group.append(line)
    if group:
        yield group


def _is_said(line: Line, group: t.Sequence[Line]) -> bool:
    """Return whether a segment began with the same step to resume from."""
    key = "resumed_from_step"
    return bool(group) and key in group[0] and group[0][key] == line[key]


def _is_late(line: Line, group: t.Sequence[Line], after: t.Iterable[Line]) -> bool:
    """Return whether a line says where an attempt resumed of which another rank has made steps since: it begins it.

    The steps go on after it then. Where they begin again, those before it are late lines of the attempt before.
    """
    if any("resumed_from_step" in item for item in group):
        return False
    made = [step for item in group if (step := _read_step(item)) is not None]
    resumed, following = parsing.read_integer(line["resumed_from_step"]), next(map(_read_step, after), None)
    return bool(made) and resumed is not None and resumed < made[0] and (following is None or following > made[-1])


def _read_step(line: Line) -> int | None:
    """Return the step of a line of training figures, None for the line with which a program starts."""
    step = None if "resumed_from_step" in line else parsing.read_integer(line.get("step"))
    return None if step is not None and step < 0 else step


def _build_segment(lines: t.Sequence[Line], unit: str | None) -> Segment:
    steps, checkpoints = [], []
    for line in lines:
        at, step, saved = parsing.read_time(line.get("at")), _read_step(line), line.get("checkpoint_step")
        if step is not None:
            loss, throughput = parsing.read_number(line.get("loss")), parsing.read_number(line.get(unit or ""))
            extras = {
                key: value
                for key in line
                if key not in (*_OWN_KEYS, unit) and (value := parsing.read_number(line[key])) is not None
            }
            bad = line.get("loss") is not None and loss is None
            # Of a line that was read after the fact, the time is that of the reading.
            steps.append(StepRecord(None if "late_s" in line else at, step, loss, throughput, bad, extras))
        if "resumed_from_step" not in line and (saved_step := parsing.read_integer(saved)) is not None:
            checkpoints.append(
                Checkpoint(at, saved_step, *(parsing.read_text(line.get(key)) for key in ("path", "step_by")))
            )
    start = parsing.read_time(lines[0].get("at"))
    return Segment(
        at=start if start is not None or not steps else steps[0].at,
        resumed_from=parsing.read_integer(lines[0].get("resumed_from_step")),
        world_size=parsing.read_integer(lines[0].get("world_size")),
        steps=tuple(steps),
        checkpoints=tuple(checkpoints),
    )


def _read_document(path: pathlib.Path, notes: list[str]) -> Line | None:
    data = _read_file(path)
    if data is None:
        if path.name not in ("fabric.json", "site.json", "tracking.json", "monitoring.json"):
            notes.append(f"{path.name} cannot be read")
        return None
    value = parse_json(data)
    if not isinstance(value, dict):
        notes.append(f"{path.name} is empty" if not data.strip() else f"{path.name} is not readable JSON")
        return None
    return value


def _read_lines(path: pathlib.Path, notes: list[str]) -> list[Line]:
    data = _read_file(path)
    if data is None:
        notes.append(f"{path.name} is missing")
        return []
    return parse_lines(data, path.name, notes)


def _read_file(path: pathlib.Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _was_stopped(record: Line) -> bool:
    """Return whether the run was ended from outside, and what its launcher printed at its end does not say why."""
    return record.get("outcome") == "cancelled" or record.get("cause") in STOPS


def _read_logs(folder: pathlib.Path, notes: list[str], stopped: bool) -> tuple[Log, ...]:
    """Return the run's logs. Links are not followed: nodes wrote the names, and a link may point anywhere."""
    logs: list[Log] = []
    for top, folders, names in os.walk(folder / "logs"):
        folders.sort()
        for name in sorted(names):
            path = pathlib.Path(top, name)
            if path.is_symlink() or not path.is_file():
                continue
            if len(logs) == MAX_LOGS:
                notes.append(f"logs: more than {MAX_LOGS} files; the rest are not listed")
                return tuple(logs)
            logs.append(_read_log(path, path.relative_to(folder).as_posix(), stopped))
    if not logs:
        notes.append(_NO_LOGS)
    return tuple(logs)


def _read_log(path: pathlib.Path, name: str, stopped: bool) -> Log:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - TAIL_BYTES, 0))
            data = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        size, data = 0, ""
    data = without_stop(data) if stopped else data
    lines = [line for line in (parsing.clean_line(raw, 240) for raw in data.splitlines()) if line]
    return Log(parsing.read_text(name) or "log", size, tuple(lines[-TAIL_LINES:]), find_error(lines))


def find_error(lines: t.Sequence[str]) -> str | None:
    """Return the last line of a log that names an error.

    The launcher's own summary (torchrun's ChildFailedError) repeats that a worker died and not why: it is passed over.
    """
    for line in reversed(lines):
        head = line.split("]: ", 1)[-1].lstrip()
        word = head.split(":", 1)[0]
        named = ":" in head and " " not in word and word.endswith(("Error", "Exception", "error"))
        if named and not word.endswith("ChildFailedError"):
            return head
        if head.startswith(("CUDA error", "Killed", "Out of memory", "Segmentation fault", "Bus error")):
            return head
    return None
