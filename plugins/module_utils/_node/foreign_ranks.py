# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ranks do on this node of jobs that this collection did not start: torchrun, accelerate, DeepSpeed, mpirun.

A rank is known by the variables of its launcher. Nothing is written, and no process is stopped.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import os
import pathlib
import time
import typing as t

from . import files, processes, rank_watch, stack_reader
from .rank import first_number
from .stack_reader import StackError, StackFrame, StackReader

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_GANG = ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID")
_MOST = 256
_LOOKS = 3


def observe_ranks(window_s: float) -> list[dict[str, t.Any]]:
    """Return the ranks of others here, each as an event ``rank_stands`` (rank_watch.py) with more.

    ``gang`` names its job, ``program`` the file that it runs, ``stands`` whether it stood for the whole window: a rank
    that keeps its processor busy stands, too, if all looks find it at one place of a collective.
    """
    found = find_ranks()
    looks: list[list[tuple[rank_watch.RankCounters | None, list[StackFrame], str]]] = [[] for _rank in found]
    for number in range(_LOOKS):
        time.sleep(window_s / _LOOKS if number else 0.0)
        for item, seen in zip(found, looks, strict=True):
            seen.append(_read_rank(item["pid"], is_last=number == _LOOKS - 1))
    return [
        {**item, **_judge(item["pid"], seen, window_s)}
        for item, seen in zip(found, looks, strict=True)
        # One that has ended meanwhile does not count.
        if seen[-1][0] is not None
    ]


def find_ranks() -> list[dict[str, t.Any]]:
    """Return ``{rank, world_size, gang, pid, program}`` of the ranks here that are not a run's of this collection."""
    found: list[dict[str, t.Any]] = []
    for name in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):
        own = processes.environment_of(int(name))
        rank, size = first_number(own, _RANK), first_number(own, _SIZE)
        if rank is None or size is None or processes.MARKER in own or len(found) >= _MOST:
            continue
        if first_number(processes.environment_of(_parent_of(int(name))), _RANK) == rank:
            # What a rank has started, such as a data loader's worker, has its variables.
            continue
        pid = stack_reader.find_python(int(name))
        store = f"{own.get('MASTER_ADDR', '')}:{own.get('MASTER_PORT', '')}".strip(":")
        gang = " ".join(filter(None, [store, *(own[key] for key in _GANG if own.get(key) not in (None, "none"))]))
        found.append({"rank": rank, "world_size": size, "gang": gang, "pid": pid, "program": _program_of(pid)})
    return found


def _read_rank(pid: int, *, is_last: bool) -> tuple[rank_watch.RankCounters | None, list[StackFrame], str]:
    progress = rank_watch.read_progress(pid, is_whole=is_last)
    try:
        with contextlib.closing(StackReader(pid)) as reader:
            return progress, reader.read_main(), ""
    except StackError as exc:
        return progress, [], str(exc)


def _judge(
    pid: int, seen: list[tuple[rank_watch.RankCounters | None, list[StackFrame], str]], window_s: float
) -> dict[str, t.Any]:
    first, last = seen[0][0], t.cast("rank_watch.RankCounters", seen[-1][0])
    frames, problem = seen[-1][1], seen[-1][2]
    is_same = all(one[1] == frames for one in seen)
    is_quiet = first is not None and rank_watch.is_quiet(first, last)
    stands = is_same and (is_quiet or rank_watch.find_operation(frames) is not None)
    return {**rank_watch.describe(pid, last, frames, problem, window_s), "stands": stands}


def _parent_of(pid: int) -> int:
    lines = files.read_text(pathlib.Path(f"/proc/{pid}/status")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("PPid:")), 0)


def _program_of(pid: int) -> str:
    """Return the name of the Python file that a process runs, else of its program."""
    argv = [item for item in files.read_text(pathlib.Path(f"/proc/{pid}/cmdline")).split("\0") if item]
    named = next((item for item in argv[1:] if item.endswith(".py")), argv[0] if argv else "")
    return os.path.basename(named)
