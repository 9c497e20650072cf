# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches the ranks of a node from outside: which of them has turned quiet, and at which line of its program.

A blocked main thread is not scheduled at all, so the kernel's counters tell a rank that waits from one that works, and
its stack is only read once it is quiet. Events of the kind ``rank_stands`` go into the run's events, and ``rank_moves``
once such a rank continues. Who of the gang is waited for is decided where all nodes are known (``_model/hang.py``).

``rank_stands`` holds ``since`` (Unix seconds), ``operation`` (the collective it waits in, else null), ``place`` its
program's line ({path, line, name}), ``frames``, ``state`` (of /proc/PID/stat), ``waits_in`` (kernel function),
``child`` (the line at which a process that it started stands), and ``problem`` where the stack cannot be read.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import pathlib
import re
import time
import typing as t

from . import files, processes, stack_reader
from .pod_log import Tail
from .stack_reader import StackError, StackFrame, StackReader

Event = dict[str, t.Any]
_EVERY_S = 1.0
# A shorter pause is none: SIGCONT, a slow disk, a save of another rank.
QUIET_S = 8.0
# A program may wait for its disk for long, and go on.
DISK_S = 30.0
# A rank that computes is looked at now and then: one whose whole stack stays the same so long goes round in circles.
_SPIN_EVERY_S, _SPIN_LOOKS = 5.0, 7
# A main thread that was scheduled less than that in a second did nothing (timers of an interpreter wake it).
_TICKS, _SWITCHES = 1, 2
# One that stands wakes now and then, as a data loader that looks for its workers: it makes no step by that.
_BUSY_LOOKS = 2
# What else belongs to a rank works: ticks and bytes a second of all, and how often its children are scheduled (one
# that downloads is, now and then; an own thread that keeps watch is, too, and does not count).
_OTHERS_TICKS, _OTHERS_BYTES, _CHILDREN_SWITCHES = 3, 64 << 10, 5
_MOST_FRAMES, _MOST_CHILDREN = 24, 16
_STOPPED, _ON_DISK = frozenset("Tt"), frozenset("D")
# Functions in which a rank waits for the others, of torch.distributed and of what is built on it.
_OPERATIONS = re.compile(
    r"^(?:all_reduce|all_gather\w*|all_to_all\w*|barrier|monitored_barrier|broadcast\w*|gather\w*|reduce|reduce_scatter\w*"
    r"|scatter\w*|send\w*|recv\w*|isend|irecv|batch_isend_irecv|init_process_group|new_group|destroy_process_group"
    r"|_store_based_barrier|_sync_buffers|_sync_module_states|_verify_param_shape_across_processes|wait_for_everyone"
    r"|rendezvous|_rendezvous_helper)$"
)
_BACKWARD = "_engine_run_backward"
_COLLECTIVE_PATHS = re.compile(r"/(?:torch/distributed|horovod|mpi4py|deepspeed/comm|accelerate)/")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<")
_TORCH = re.compile(r"/(?:site|dist)-packages/(?:torch|accelerate|deepspeed)/|/lib/python3\.\d+/(?!site-packages/)|^<")
# Packages may be in any folder (pip --target, an image's own): those beside torch are in the folder that has torch.
_BESIDE_TORCH = re.compile(r"^(.+/)torch/(?:_\w+\.py|autograd/|cuda/|distributed/|nn/|optim/|utils/)")


class RankCounters(t.NamedTuple):
    """What the kernel counted of a rank until now: of its main thread, and ``others``, where that was read, too."""

    state: str
    ticks: int
    switches: int
    others: OtherCounters | None = None


class OtherCounters(t.NamedTuple):
    """What the kernel counted of the other threads of a rank and of its children: reading it takes longer."""

    ticks: int
    bytes: int
    switches: int
    children: tuple[int, ...] = ()


class _Watched:
    """A rank and what is known of it."""

    def __init__(self, started: Event, now: float) -> None:
        self.started = started
        self.pid = stack_reader.find_python(int(started["pid"]))
        self.before: RankCounters | None = None
        self.quiet_since = now
        self.looks: list[list[StackFrame]] = []
        self.looked_at = now
        self.stands = False
        self.busy = 0
        self.reader: StackReader | None = None


class RankWatch:
    """Looks at the ranks of a node once a second. Parameters as of ``rank_transport.TransportRecorder``."""

    def __init__(self, run_dir: pathlib.Path, node: str, since: int | None = None) -> None:
        self.node, self.events = node, run_dir / "events.jsonl"
        self._tail = Tail(self.events, new=since is None, since=since or 0)
        self._ranks: dict[int, _Watched] = {}
        self._due = 0.0

    def update(self, now: float | None = None) -> None:
        """Look, if it is time to, and record which ranks stand or move again. ``now``: monotonic seconds."""
        now = time.monotonic() if now is None else now
        if now < self._due:
            return
        self._due = now + _EVERY_S
        try:
            for line in self._tail.lines():
                self._take(line, now)
            for rank, watched in self._ranks.items():
                event = self._judge(watched, now)
                if event is not None:
                    about = {"node": self.node, "rank": rank, "attempt": watched.started.get("attempt")}
                    files.append_json(self.events, {"at": time.time(), **about, **event})
        except Exception:
            # There is no room for what was seen, or it was not what is expected: the job runs on.
            return

    def _take(self, line: Event, now: float) -> None:
        rank = line.get("rank")
        if not isinstance(rank, int) or line.get("kind") not in ("worker_started", "worker_exit"):
            return
        before = self._ranks.pop(rank, None)
        if before is not None and before.reader is not None:
            before.reader.close()
        if line["kind"] == "worker_started" and isinstance(line.get("pid"), int):
            self._ranks[rank] = _Watched(line, now)

    def _judge(self, watched: _Watched, now: float) -> Event | None:
        before = watched.before
        # Two readings of all that belongs to it, before it may be said to stand.
        is_whole = not watched.stands and now - watched.quiet_since >= QUIET_S - 2 * _EVERY_S
        progress = watched.before = read_progress(watched.pid, is_whole)
        if progress is None:
            # A shell around the program may have started it meanwhile.
            watched.pid = stack_reader.find_python(int(watched.started["pid"]))
            return None
        if before is None or not is_quiet(before, progress):
            watched.quiet_since = now
            watched.busy += 1
            return self._judge_busy(watched, now)
        watched.busy = 0
        quiet_s = now - watched.quiet_since
        if watched.stands or quiet_s < QUIET_S:
            return None
        frames, problem = self._read(watched)
        same, watched.looks = bool(watched.looks) and watched.looks[-1] == frames, [frames]
        if not same or not _is_stuck(before, progress, frames, quiet_s):
            return None
        watched.stands = True
        return describe(watched.pid, progress, frames, problem, quiet_s)

    def _judge_busy(self, watched: _Watched, now: float) -> Event | None:
        """Look at a rank that is scheduled: it moves again, or it computes at one and the same place for long."""
        if watched.stands and not watched.looks[1:]:
            if watched.busy < _BUSY_LOOKS:
                return None
            watched.stands, watched.looks = False, []
            return {"kind": "rank_moves"}
        if now - watched.looked_at < _SPIN_EVERY_S:
            return None
        watched.looked_at = now
        frames, _problem = self._read(watched)
        if watched.looks and _without_last_line(watched.looks[-1]) != _without_last_line(frames):
            stood, watched.stands, watched.looks = watched.stands, False, [frames]
            return {"kind": "rank_moves"} if stood else None
        watched.looks = [*watched.looks, frames][-_SPIN_LOOKS:]
        if watched.stands or not frames or find_operation(frames) or len(watched.looks) < _SPIN_LOOKS:
            return None
        watched.stands = True
        progress = t.cast(RankCounters, watched.before)
        return describe(watched.pid, progress, frames, "", _SPIN_EVERY_S * (_SPIN_LOOKS - 1))

    def _read(self, watched: _Watched) -> tuple[list[StackFrame], str]:
        """Return the frames of a rank's main thread, else nothing and why."""
        try:
            watched.reader = watched.reader or StackReader(watched.pid)
            return watched.reader.read_main(), ""
        except StackError as exc:
            return [], str(exc)


def read_progress(pid: int, is_whole: bool = False) -> RankCounters | None:
    """Return what the kernel counted of a process until now, None once it has ended.

    :param is_whole: whether to read of its other threads and its children, too.
    """
    main = _read_stat(pid, pid)
    if main is None:
        return None
    return RankCounters(*main, _read_switches(pid), _read_others(pid, main[1]) if is_whole else None)


def _read_others(pid: int, main_ticks: int) -> OtherCounters:
    children = tuple(processes.list_descendants(pid, _MOST_CHILDREN))
    ticks = sum(stat[1] for stat in map(_read_stat, (pid, *children)) if stat is not None)
    moved = sum(map(_read_io, (pid, *children)))
    return OtherCounters(ticks - main_ticks, moved, sum(map(_read_switches, children)), children)


def find_operation(frames: t.Sequence[StackFrame]) -> str | None:
    """Return the operation in which the frames of a rank, the innermost first, wait for the others; None where none."""
    for frame in frames:
        name = frame.name.rpartition(".")[2]
        if name == _BACKWARD:
            return "backward"
        if _OPERATIONS.match(name) and _COLLECTIVE_PATHS.search(frame.path):
            return name
        if name in ("forward", "_pre_forward") and frame.path.endswith("torch/nn/parallel/distributed.py"):
            return "forward of DistributedDataParallel"
    return None


def find_place(frames: t.Sequence[StackFrame]) -> StackFrame | None:
    """Return the innermost frame of the program itself; of one that is installed, the innermost outside of torch."""
    folders = {match[1] for frame in frames if (match := _BESIDE_TORCH.match(frame.path))}
    for libraries, beside in ((_LIBRARY, folders), (_TORCH, {f"{folder}torch/" for folder in folders})):
        for frame in frames:
            if not libraries.search(frame.path) and not frame.path.startswith(tuple(beside)):
                return frame
    return None


def _without_last_line(frames: list[StackFrame]) -> list[StackFrame]:
    """Return frames without the line of the innermost: a loop of two lines is one place."""
    return [frame._replace(line=0) for frame in frames[:1]] + frames[1:]


def is_quiet(before: RankCounters, now: RankCounters) -> bool:
    """Return whether a rank did nothing between two readings, or is stopped."""
    if now.state in _STOPPED:
        return True
    return now.ticks - before.ticks <= _TICKS and now.switches - before.switches <= _SWITCHES


def _is_stuck(before: RankCounters, now: RankCounters, frames: t.Sequence[StackFrame], quiet_s: float) -> bool:
    """Return whether a quiet rank stands: it waits for others, or nothing that belongs to it works for it."""
    if now.state in _STOPPED or find_operation(frames):
        return True
    if now.state in _ON_DISK and quiet_s < DISK_S:
        return False
    then, others = before.others, now.others
    if then is None or others is None:
        return False
    works = others.ticks - then.ticks >= _OTHERS_TICKS or others.switches - then.switches > _CHILDREN_SWITCHES
    return not works and others.bytes - then.bytes < _OTHERS_BYTES


def describe(pid: int, progress: RankCounters, frames: list[StackFrame], problem: str, stood_s: float) -> Event:
    """Return the event of a rank that has stood for ``stood_s`` seconds; ``problem``: why it has no frames."""
    return {
        "kind": "rank_stands",
        "since": round(time.time() - stood_s, 3),
        "operation": find_operation(frames),
        "place": _to_plain(find_place(frames)),
        "state": progress.state,
        "waits_in": _read_proc(pid, "wchan").strip("0\n") or None,
        "child": _to_plain(_find_child_place(progress.others.children if progress.others else ())),
        "frames": [list(frame) for frame in frames[:_MOST_FRAMES]],
        "problem": problem,
    }


def _to_plain(frame: StackFrame | None) -> dict[str, t.Any] | None:
    return frame._asdict() if frame is not None else None


def _find_child_place(children: t.Sequence[int]) -> StackFrame | None:
    """Return where the first child of a rank that is in the program itself stands, such as a data loader's worker."""
    for child in children[:_MOST_CHILDREN]:
        try:
            reader = StackReader(child)
        except StackError:
            continue
        try:
            place = find_place(reader.read_main())
        except StackError:
            continue
        finally:
            reader.close()
        if place is not None:
            return place
    return None


def _read_stat(pid: int, task: int | None = None) -> tuple[str, int] | None:
    """Return (state, clock ticks used) of a process, or of one of its threads; None once it has ended."""
    text = _read_proc(pid, "stat" if task is None else f"task/{task}/stat")
    # The command's name may hold spaces and parentheses.
    fields = text[text.rfind(")") + 2 :].split()
    return (fields[0], int(fields[11]) + int(fields[12])) if len(fields) > 12 and fields[0] not in "ZX" else None


def _read_switches(pid: int) -> int:
    lines = _read_proc(pid, f"task/{pid}/status").splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def _read_io(pid: int) -> int:
    lines = _read_proc(pid, "io").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


def _read_proc(pid: int, name: str) -> str:
    return files.read_text(pathlib.Path("/proc", str(pid), name))
