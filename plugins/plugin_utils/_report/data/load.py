# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's folder as one value. Every file but run.json may be missing, empty or torn; what was is kept as a note.

Files: run.json (contracts: "Run record"), events.jsonl, metrics.jsonl, usage.jsonl, fabric.json, logs/.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

from ....module_utils._model.errors import InputError
from . import parsing

TAIL_BYTES = 64 * 1024
TAIL_LINES = 14
MAX_LOGS = 400


@dataclasses.dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened: ``at`` in Unix seconds; ``kind`` as written (submitted, worker_exit, drill, ...).

    ``exit_code`` is 128 + the signal for a process that a signal ended.
    """

    at: float
    kind: str
    node: str | None
    rank: int | None
    attempt: int | None
    detail: str | None
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
    """What one start of the program wrote. ``resumed_from`` is 0 for a fresh start and None when it did not say."""

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
    """Everything known about one run. ``record`` is run.json; ``notes`` say what was missing or unreadable."""

    name: str
    record: dict[str, t.Any]
    events: tuple[RunEvent, ...] = ()
    segments: tuple[Segment, ...] = ()
    unit: str | None = None
    usage: tuple[Usage, ...] = ()
    fabric: dict[str, t.Any] | None = None
    logs: tuple[Log, ...] = ()
    notes: tuple[str, ...] = ()


def load_run(folder: pathlib.Path) -> RunFolder:
    """Return the run kept in ``folder``.

    :raises InputError: the folder or its run.json is not there (everything else becomes a note).
    """
    if not (folder / "run.json").is_file():
        raise InputError("run", f"no run.json in {folder}", "Name a folder <state>/<cluster>/runs/<run_id>")
    notes: list[str] = []
    record = _document(folder / "run.json", notes)
    segments, unit = parse_metrics(_lines(folder / "metrics.jsonl", notes), notes)
    return RunFolder(
        name=parsing.read_text(folder.resolve().name) or "run",
        record=record or {},
        events=parse_events(_lines(folder / "events.jsonl", notes)),
        segments=segments,
        unit=unit,
        usage=parse_usage(_lines(folder / "usage.jsonl", notes)),
        fabric=_document(folder / "fabric.json", notes),
        logs=_logs(folder, notes),
        notes=tuple(notes),
    )


def parse_json(data: str) -> t.Any:
    """Return the JSON value of ``data``, or None when it is none (or nested too deep, or a number too long)."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def parse_lines(data: str, name: str, notes: list[str]) -> list[dict[str, t.Any]]:
    """Return the objects of JSON lines; a torn last line and unreadable lines are left out and noted."""
    lines = data.split("\n")
    found: list[dict[str, t.Any]] = []
    bad = 0
    for line in lines:
        value = parse_json(line) if line.strip() else None
        if isinstance(value, dict):
            found.append(value)
        elif line.strip():
            bad += 1
    if bad and lines[-1].strip() and not isinstance(parse_json(lines[-1]), dict):
        bad -= 1
        notes.append(f"{name}: the last line is cut off and was left out")
    if bad:
        notes.append(f"{name}: {bad} unreadable line{'s' if bad > 1 else ''} left out")
    if not found and not bad:
        notes.append(f"{name} is empty")
    return found


def parse_events(lines: t.Iterable[dict[str, t.Any]]) -> tuple[RunEvent, ...]:
    """Return the events in order of time; a line without time or kind says nothing and is dropped."""
    found = []
    for line in lines:
        at, kind = parsing.read_time(line.get("at")), parsing.read_text(line.get("kind"), 40)
        if at is not None and kind:
            node, detail = parsing.read_text(line.get("node"), 80), _detail(line.get("detail"))
            rank, attempt, code = (parsing.read_integer(line.get(key)) for key in ("rank", "attempt", "exit_code"))
            found.append(RunEvent(at, kind, node, rank, attempt, detail, code))
    return tuple(sorted(found, key=lambda event: event.at))


def _detail(value: t.Any) -> str | None:
    if isinstance(value, dict):
        pairs = ((parsing.read_text(key, 40), parsing.read_text(item, 80)) for key, item in value.items())
        return parsing.read_text(", ".join(f"{key} {item}" for key, item in pairs if key and item))
    return parsing.read_text(value)


def parse_usage(lines: t.Iterable[dict[str, t.Any]]) -> tuple[Usage, ...]:
    """Return the samples of all nodes in order of time."""
    found = []
    for line in lines:
        at, node = parsing.read_time(line.get("at")), parsing.read_text(line.get("node"), 80)
        if at is not None and node:
            known = (parsing.read_number(line.get(key)) for key in ("cpu_percent", "memory_gib", "gpu_percent"))
            found.append(Usage(at, node, *known))
    return tuple(sorted(found, key=lambda sample: sample.at))


class _Open:
    """A segment being filled, in the order of the lines."""

    def __init__(self, line: dict[str, t.Any] | None) -> None:
        given = line or {}
        self.at = parsing.read_time(given.get("at"))
        self.resumed_from = parsing.read_integer(given.get("resumed_from_step"))
        self.world_size = parsing.read_integer(given.get("world_size"))
        self.steps: list[StepRecord] = []
        self.checkpoints: list[Checkpoint] = []

    def close(self) -> Segment:
        at = self.at if self.at is not None or not self.steps else self.steps[0].at
        return Segment(at, self.resumed_from, self.world_size, tuple(self.steps), tuple(self.checkpoints))


def parse_metrics(lines: t.Iterable[dict[str, t.Any]], notes: list[str]) -> tuple[tuple[Segment, ...], str | None]:
    """Return the segments in order, and the unit of their throughput (``tokens_per_s``, ``samples_per_s``) or None.

    A segment starts with a ``resumed_from_step`` line, or where the step falls back without one.
    """
    segments: list[_Open] = []
    unit: str | None = None
    lost = 0
    for line in lines:
        step, saved = parsing.read_integer(line.get("step")), parsing.read_integer(line.get("checkpoint_step"))
        if "resumed_from_step" in line:
            segments.append(_Open(line))
            continue
        if not segments or (step is not None and segments[-1].steps and step <= segments[-1].steps[-1].step):
            segments.append(_Open(None))
        if saved is not None:
            segments[-1].checkpoints.append(
                Checkpoint(parsing.read_time(line.get("at")), saved, parsing.read_text(line.get("path")))
            )
        if step is not None:
            unit = unit or next((key for key in ("tokens_per_s", "samples_per_s") if key in line), None)
            loss = parsing.read_number(line.get("loss"))
            lost += loss is None and line.get("loss") is not None
            segments[-1].steps.append(
                StepRecord(parsing.read_time(line.get("at")), step, loss, parsing.read_number(line.get(unit or "")))
            )
    if lost:
        notes.append(f"metrics.jsonl: the loss is not a number (NaN or infinite) in {lost} lines")
    return tuple(item.close() for item in segments), unit


def _document(path: pathlib.Path, notes: list[str]) -> dict[str, t.Any] | None:
    data = _read(path)
    if data is None:
        if path.name != "fabric.json":
            notes.append(f"{path.name} cannot be read")
        return None
    value = parse_json(data)
    if not isinstance(value, dict):
        notes.append(f"{path.name} is empty" if not data.strip() else f"{path.name} is not readable JSON")
        return None
    return value


def _lines(path: pathlib.Path, notes: list[str]) -> list[dict[str, t.Any]]:
    data = _read(path)
    if data is None:
        notes.append(f"{path.name} is missing")
        return []
    return parse_lines(data, path.name, notes)


def _read(path: pathlib.Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _logs(folder: pathlib.Path, notes: list[str]) -> tuple[Log, ...]:
    """Return the run's logs. Links are not followed: nodes wrote the names, and a link may point anywhere."""
    found: list[Log] = []
    for top, folders, names in os.walk(folder / "logs"):
        folders.sort()
        for name in sorted(names):
            path = pathlib.Path(top, name)
            if path.is_symlink() or not path.is_file():
                continue
            if len(found) == MAX_LOGS:
                notes.append(f"logs: more than {MAX_LOGS} files, the rest is not listed")
                return tuple(found)
            found.append(_log(path, path.relative_to(folder).as_posix()))
    if not found:
        notes.append("logs: none were collected")
    return tuple(found)


def _log(path: pathlib.Path, name: str) -> Log:
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
