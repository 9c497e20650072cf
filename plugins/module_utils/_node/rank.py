# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank of a job: records that it started, runs the user's command, records how it ended.

Started by the launcher once per rank, as ``python3 -I -S rank.py EVENTS_FILE COMMAND...``. The records are what
attendance (ranks seen = ranks asked) and the diagnosis of a crash rest on. The command keeps this process's
process group, because launchers signal the group; this process itself outlives their SIGTERM to record the end.

This is a private utility of the collection; it may change without notice.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import typing as t


def _first_number(*names: str) -> int | None:
    for name in names:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


def _append_event(path: str, values: dict[str, object]) -> None:
    line = json.dumps({"at": time.time(), "node": os.environ.get("MUSTER_NODE"), **values}).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, line)
        os.close(descriptor)
    except OSError as exc:
        # A full disk must not keep the rank from running; attendance will then say that it was not seen.
        print(f"muster: cannot record the rank in {path}: {exc.strerror}", file=sys.stderr)


def _count_attempt(counter: str, base: int, local_rank: int | None) -> int:
    """Return this gang attempt's number: every attempt starts each local rank once, so counting starts counts it."""
    try:
        descriptor = os.open(f"{counter}.{local_rank or 0}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, b".")
        started = os.fstat(descriptor).st_size
        os.close(descriptor)
    except OSError:
        return base
    return base + max(started, 1) - 1


def _load_secrets(path: str) -> None:
    """Add the variables of a secrets file that the launcher itself (an sshd) does not hand on."""
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            os.environ.update(json.load(handle))


def _execute(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        print(f"muster: cannot run {command[0]}: {exc.strerror}", file=sys.stderr)
        os._exit(127)


def main(argv: list[str], become: t.Callable[[list[str]], None] = _execute) -> int:
    """Run ``argv[2:]`` as one rank; return its exit code (128 + signal when a signal ended it).

    ``become`` turns the child into the user's command and does not return.
    """
    events, command = argv[1], argv[2:]
    rank = _first_number("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "NODE_RANK")
    size = _first_number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "NNODES")
    local = _first_number("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
    base = int(os.environ.get("MUSTER_ATTEMPT_BASE", "1"))
    counter = os.environ.get("MUSTER_ATTEMPT_COUNTER")
    attempt = _count_attempt(counter, base, local) if counter else base
    os.environ["MUSTER_ATTEMPT"] = str(attempt)
    # One life of the gang: torchrun takes a new port for each, mpirun a new namespace.
    place = os.environ.get("PMIX_NAMESPACE") or f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    # A command meets at the same place in every start.
    gang = f"{base}/{place}"
    common = {"rank": rank, "local_rank": local, "attempt": attempt, "gang": gang}
    _load_secrets(os.environ.pop("MUSTER_SECRETS_FILE", ""))
    child = os.fork()
    if child == 0:
        become(command)
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, lambda *_unused: None)
    _append_event(events, {"kind": "worker_started", **common, "world_size": size, "pid": child})
    status = _wait(child)
    code, number = os.waitstatus_to_exitcode(status), 0
    if code < 0:
        code, number = 128 - code, -code
    _append_event(events, {"kind": "worker_exit", **common, "exit_code": code, "signal": number})
    done = os.environ.get("MUSTER_DONE")
    if done and code == 0:
        # To mpirun's output, which another pod reads.
        with contextlib.suppress(OSError):
            # Twice: mpirun passes on pieces of what ranks print, and another rank's may come between two of them.
            os.write(1, f"{done} {rank}\n".encode() * 2)
    if str(code) in os.environ.get("MUSTER_FATAL_EXIT_CODES", "").split(","):
        # torchrun knows no code that must not be repeated: its agent is ended before it starts the rank again.
        os.kill(os.getppid(), signal.SIGTERM)
    return code


def _wait(child: int) -> int:
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except InterruptedError:
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv))
