# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gangs of real ranks (torch, gloo) on two nodes' worth of watches, one of whose ranks stops as the program is told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.hang import Hang
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._node.rank_watch import RankWatch

FOLDER = pathlib.Path(__file__).parent.parent / "fixtures" / "hangs"
PROGRAM = FOLDER / "ddp_program.py"
NODES = ("node-1", "node-2")


def read_lines() -> dict[str, int]:
    """Return kind -> the line of the program at which a rank of that kind stands."""
    rows = PROGRAM.read_text().splitlines()
    found = ((number, re.search(r"\S  # HERE (\w+)$", row)) for number, row in enumerate(rows, 1))
    return {match[1]: number for number, match in found if match}


@dataclasses.dataclass
class Named:
    """What was said of a gang: after how many seconds, by whom it is waited for, and what ranks said by the way."""

    after_s: float
    hang: Hang


class Ranks:
    """Forks ranks from one process that has imported torch."""

    def __init__(self, python: str) -> None:
        self._parent = subprocess.Popen(
            [python, str(FOLDER / "fork_ranks.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pids: list[int] = []

    def start(self, env: t.Mapping[str, str], output: pathlib.Path) -> int:
        """Return the process id of a new rank."""
        asked, answer = t.cast("t.IO[str]", self._parent.stdin), t.cast("t.IO[str]", self._parent.stdout)
        asked.write(json.dumps({"env": env, "output": str(output)}) + "\n")
        asked.flush()
        self.pids.append(int(answer.readline()))
        return self.pids[-1]

    def close(self) -> None:
        """Kill all ranks, and what they started."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._parent.kill()
        self._parent.wait()


class StartedRanks(Ranks):
    """Starts each rank by itself, as a launcher does: its variables are those of its process."""

    def __init__(self, python: str) -> None:
        self.python, self.pids = python, []

    def start(self, env: t.Mapping[str, str], output: pathlib.Path) -> int:
        """Return the process id of a new rank."""
        with open(output, "ab") as log:
            argv = [self.python, str(PROGRAM)]
            own = {**os.environ, **env}
            rank = subprocess.Popen(
                argv, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.pids.append(rank.pid)
        return rank.pid

    def close(self) -> None:
        """Kill all ranks, and what they started."""
        for pid in self.pids:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class Gang:
    """One gang: its ranks are started at once, half of them on each node. :ivar history: what its nodes told."""

    def __init__(self, ranks: Ranks, folder: pathlib.Path, kind: str, world: int, bad: int, **env: str) -> None:
        folder.mkdir(parents=True)
        self.kind, self.bad, self.truth = kind, bad, folder / "truth"
        os.mkfifo(folder / "fifo")
        self.history = RunHistory()
        self.runs = {node: folder / node for node in NODES}
        self.pids: dict[int, int] = {}
        self._read = dict.fromkeys(NODES, 0)
        self.watches = {}
        for node, run in self.runs.items():
            run.mkdir()
            (run / "events.jsonl").touch()
            self.watches[node] = RankWatch(run, node)
        common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        told = {"HANG_KIND": kind, "HANG_RANK": str(bad), "HANG_FIFO": str(folder / "fifo")}
        told |= {"HANG_TRUTH": str(self.truth), **env}
        for rank in range(world):
            pid = ranks.start({**common, **told, "RANK": str(rank)}, folder / f"rank-{rank}.log")
            self.pids[rank] = pid
            node = NODES[rank * len(NODES) // world]
            values = {"rank": rank, "node": node, "pid": pid, "attempt": 1, "gang": "gang", "world_size": world}
            self._tell(node, {"kind": "worker_started", **values})

    def _tell(self, node: str, line: t.Mapping[str, t.Any]) -> None:
        with open(self.runs[node] / "events.jsonl", "a", encoding="utf-8") as handle:
            handle.write(json.dumps({"at": time.time(), **line}) + "\n")

    def update(self) -> None:
        """Let both nodes look, and read what they told."""
        for node, watch in self.watches.items():
            watch.update()
            lines = (self.runs[node] / "events.jsonl").read_text().splitlines()
            for line in lines[self._read[node] :]:
                self.history.event(json.loads(line))
            self._read[node] = len(lines)

    @property
    def began_at(self) -> float | None:
        """Return when the rank stopped, None before it has."""
        return float(self.truth.read_text().split()[2]) if self.truth.exists() else None

    @property
    def hang(self) -> Hang | None:
        """Return what is said of the gang now."""
        return self.history.find_hang(0.0)


def name_all(gangs: t.Sequence[Gang], within_s: float) -> dict[str, Named]:
    """Return by kind how each gang is named first, as far as it is until ``within_s`` after it stopped."""
    found: dict[str, Named] = {}
    end = time.monotonic() + within_s + 120
    while len(found) < len(gangs) and time.monotonic() < end:
        time.sleep(0.25)
        for gang in gangs:
            gang.update()
            if gang.hang is not None and gang.kind not in found:
                found[gang.kind] = Named(time.time() - (gang.began_at or time.time()), gang.hang)
        if all(gang.began_at and time.time() - gang.began_at > within_s for gang in gangs):
            break
    return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
