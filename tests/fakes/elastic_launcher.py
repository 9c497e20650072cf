# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for torchrun in tests without torch: ``elastic_launcher.py NPROC MAX_RESTARTS COMMAND...``.

It does what the supervisor and the rank recorder rely on: one process a local rank, each in a session of its own with
RANK, LOCAL_RANK, WORLD_SIZE and an address that is new for each life; when a rank fails all are stopped and started
again, at most MAX_RESTARTS times; on SIGTERM the ranks' groups get SIGTERM and the launcher ends after them. There is
no rendezvous between nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

STOPPED = 143


def start(nproc: int, command: list[str], life: int) -> list[subprocess.Popen[bytes]]:
    """Start all ranks of this node for the given life of the gang."""
    first = int(os.environ.get("NODE_RANK", "0")) * nproc
    world = int(os.environ.get("NNODES", "1")) * nproc
    ranks = []
    for local in range(nproc):
        values = {"RANK": str(first + local), "LOCAL_RANK": str(local), "WORLD_SIZE": str(world)}
        values.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{os.getpid()}{life}"})
        ranks.append(subprocess.Popen(command, env={**os.environ, **values}, start_new_session=True))
    return ranks


def stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Stop what still runs: SIGTERM to each group, and wait."""
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGTERM)
    for rank in ranks:
        rank.wait()


def main(argv: list[str]) -> int:
    """Run until all ranks have ended well, or the restarts are spent."""
    nproc, restarts, command = int(argv[1]), int(argv[2]), argv[3:]
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    while True:
        ranks = start(nproc, command, restarts)
        while not asked and all(rank.poll() in (None, 0) for rank in ranks):
            if all(rank.poll() == 0 for rank in ranks):
                return 0
            time.sleep(0.01)
        stop(ranks)
        if asked:
            return STOPPED
        if restarts == 0:
            return 1
        restarts -= 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
