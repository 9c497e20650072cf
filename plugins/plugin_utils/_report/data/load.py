# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a run's folder into one value: run.json, events.jsonl, metrics.jsonl, usage.jsonl, fabric.json and logs/.

Every file but run.json may be missing, empty or cut off; a note says which.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.run_history import Attempt, RunHistory, fold
from . import parsing

Line = t.Mapping[str, object]

TAIL_BYTES = 64 * 1024
TAIL_LINES = 14
MAX_LOGS = 400


@dataclasses.dataclass(frozen=True, slots=True)
class RunEvent:
    """An event to mark on the time line: ``at`` in Unix seconds; ``kind`` as written (worker_exit, drill, ...).

    ``exit_code`` is 128 + the signal for a process that a signal ended.
    """

    at: float
    kind: str
    node: str | None
    exit_code: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StepRecord:
    """One line of training figures; ``throughput`` in the unit named by :attr:`RunFolder.unit`."""

    at: float | None
    step: int
    loss: float | None
    throughput: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that the program says it saved."""

    at: float | None
    step: int
    path: str | None


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
    return dataclasses.replace(
        run,
        usage=parse_usage(_read_lines(folder / "usage.jsonl", notes)),
        fabric=_read_document(folder / "fabric.json", notes),
        logs=_read_logs(folder, notes),
        notes=tuple(notes),
    )


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


def parse_usage(lines: t.Iterable[Line]) -> tuple[Usage, ...]:
    """Return the samples of all nodes in order of time."""
    samples = []
    for line in lines:
        at, node = parsing.read_time(line.get("at")), parsing.read_text(line.get("node"), 80)
        if at is not None and node:
            percentages = (parsing.read_number(line.get(key)) for key in ("cpu_percent", "memory_gib", "gpu_percent"))
            samples.append(Usage(at, node, *percentages))
    return tuple(sorted(samples, key=lambda sample: sample.at))


class _SegmentBuilder:
    """A segment being filled, in the order of the lines."""

    def __init__(self, first_line: Line) -> None:
        self.at = parsing.read_time(first_line.get("at"))
        self.resumed_from = parsing.read_integer(first_line.get("resumed_from_step"))
        self.world_size = parsing.read_integer(first_line.get("world_size"))
        self.steps: list[StepRecord] = []
        self.checkpoints: list[Checkpoint] = []

    def is_followed_by(self, step: int | None) -> bool:
        """Return whether a line with this step can come next: the step of one start of a program only rises."""
        return step is None or not self.steps or step > self.steps[-1].step

    def build(self) -> Segment:
        at = self.at if self.at is not None or not self.steps else self.steps[0].at
        return Segment(at, self.resumed_from, self.world_size, tuple(self.steps), tuple(self.checkpoints))


def parse_metrics(
    lines: t.Iterable[Line], notes: list[str], history: RunHistory | None = None
) -> tuple[tuple[Segment, ...], str | None]:
    """Return the segments in order, and the unit of their throughput (``tokens_per_s``, ``samples_per_s``) or None.

    A segment starts with a ``resumed_from_step`` line, where the step falls back without one, and with each attempt.
    """
    segments: list[_SegmentBuilder] = []
    unit: str | None = None
    attempt: Attempt | None = None
    bad_losses = 0
    for line in lines:
        at, step, saved = _read_metric(line)
        previous = attempt
        attempt = (history.attempt_at(at) if history and at is not None else None) or previous
        begins = "resumed_from_step" in line
        if begins or not segments or attempt is not previous or not segments[-1].is_followed_by(step):
            segments.append(_SegmentBuilder(line))
        if begins:
            continue
        if saved is not None:
            segments[-1].checkpoints.append(Checkpoint(at, saved, parsing.read_text(line.get("path"))))
        if step is not None:
            unit = unit or next((key for key in ("tokens_per_s", "samples_per_s") if key in line), None)
            loss = parsing.read_number(line.get("loss"))
            bad_losses += loss is None and line.get("loss") is not None
            segments[-1].steps.append(StepRecord(at, step, loss, parsing.read_number(line.get(unit or ""))))
    if bad_losses:
        notes.append(f"metrics.jsonl: the loss is not a number (NaN or infinite) in {bad_losses} lines")
    return tuple(segment.build() for segment in segments), unit


def _read_metric(line: Line) -> tuple[float | None, int | None, int | None]:
    """Return (time, step, step of a saved checkpoint) of a line."""
    step, saved = (parsing.read_integer(line.get(key)) for key in ("step", "checkpoint_step"))
    return parsing.read_time(line.get("at")), step, saved


def _read_document(path: pathlib.Path, notes: list[str]) -> Line | None:
    data = _read_file(path)
    if data is None:
        if path.name != "fabric.json":
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


def _read_logs(folder: pathlib.Path, notes: list[str]) -> tuple[Log, ...]:
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
            logs.append(_read_log(path, path.relative_to(folder).as_posix()))
    if not logs:
        notes.append("logs: none were collected")
    return tuple(logs)


def _read_log(path: pathlib.Path, name: str) -> Log:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - TAIL_BYTES, 0))
            data = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        size, data = 0, ""
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
