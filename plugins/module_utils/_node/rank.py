# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank of a job: records that it started, runs the user's command, records how it ended.

Started by the launcher once per rank, as ``python3 -I -S rank.py EVENTS_FILE COMMAND...``. The records are what
attendance (ranks seen = ranks asked) and the diagnosis of a crash rest on. The command keeps this process's
process group, because launchers signal the group; this process itself outlives their SIGTERM to record the end.

Where the nodes of a gang share no folder for checkpoints, what one of them saved is copied to the others first
(``checkpoint_peers.py``). A file system that has them is waited for (``checkpoint_mount.py``).
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

_OUTLIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Those of them that have come.
_received: list[int] = []


def first_number(variables: t.Mapping[str, str], names: t.Sequence[str]) -> int | None:
    """Return the first of the named variables that is a number, None where none is."""
    return next((int(variables[name]) for name in names if variables.get(name, "").isdecimal()), None)


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


def _log_nccl(attempt: int, rank: int | None) -> None:
    """Have NCCL write a log of this rank that proves its transport, unless the job has NCCL log elsewhere."""
    place = os.environ.pop("MUSTER_NCCL_LOG", "")
    if place and not any(name.startswith("NCCL_DEBUG") for name in os.environ):
        own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
        os.environ.update(own, NCCL_DEBUG_FILE=f"{place}.{attempt}.{rank}.%h.%p.log")


def _open_output(base: int, attempt: int, rank: int | None) -> None:
    """Print into a file of this attempt's rank, which ``host_rank_output.py`` copies; without room, into the log.

    It is one file: what a program prints to its two streams stays in order. In a pod it is the one that torchrun reads.
    """
    if os.environ.pop("MUSTER_ONE_STREAM", ""):
        os.dup2(1, 2)
    place = os.environ.pop("MUSTER_OUTPUT", "")
    if not place or rank is None:
        return
    folder = os.path.join(place, f"attempt_{base}.{attempt}", str(rank))
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # Nothing that was printed is overwritten, should the number of an attempt come again.
        descriptor = os.open(os.path.join(folder, "stdout.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)


def _fill_checkpoint_dir(argument: str) -> str:
    """Name the run's folder for checkpoints in an argument, for programs that take it as one."""
    return argument.replace("{checkpoint_dir}", os.environ.get("MUSTER_CHECKPOINT_DIR", "{checkpoint_dir}"))


def _list_resume_args() -> list[str]:
    """Return the job's arguments for a program that resumes, with the newest whole checkpoint; none without one."""
    given, folder = os.environ.pop("MUSTER_RESUME_ARGS", ""), os.environ.get("MUSTER_CHECKPOINT_DIR", "")
    if not given or not folder:
        return []
    import pathlib

    rules = json.loads(given)
    checkpoints = _import_neighbour("checkpoints")
    found = checkpoints.list_complete(pathlib.Path(folder), rules["format"])
    if not found:
        return []
    place = os.path.join(folder, checkpoints.call(found[0]))
    if any("{checkpoint}" in item for item in rules["args"]):
        checkpoints.note_resumed(pathlib.Path(folder), found[0].name)
    return [_fill_checkpoint_dir(item.replace("{checkpoint}", place)) for item in rules["args"]]


def _import_neighbour(name: str) -> t.Any:
    """Return a module of the package around this file, which is run by itself."""
    import importlib

    package = os.path.dirname(os.path.abspath(__file__))
    if os.path.dirname(package) not in sys.path:
        sys.path.insert(0, os.path.dirname(package))
    return importlib.import_module(f"{os.path.basename(package)}.{name}")


def _load_secrets(path: str) -> None:
    """Add the variables of a secrets file that the launcher itself (an sshd) does not hand on."""
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            os.environ.update(json.load(handle))


def _execute(command: list[str]) -> t.NoReturn:
    # Python ignores these two, and a program inherits that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OUTLIVED)
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        print(f"muster: cannot run {command[0]}: {exc.strerror}", file=sys.stderr)
        os._exit(127)


def _bring_checkpoints(run: str, gang: str, first: bool) -> str:
    """Copy here what other nodes saved, in a gang that shares no folder for checkpoints; return why that failed."""
    if not os.path.exists(os.path.join(run, "secrets", "peers.json")):
        return ""
    import pathlib

    problem: str = _import_neighbour("checkpoint_peers").pass_gate(pathlib.Path(run), gang, first=first)
    return problem


def _find_lost_mount(run: str, first: bool) -> str:
    """Return why the file system of the checkpoints of an earlier start is not there, empty where it is."""
    folder = os.environ.get("MUSTER_CHECKPOINT_DIR")
    if not folder:
        return ""
    import pathlib

    problem: str = _import_neighbour("checkpoint_mount").pass_gate(pathlib.Path(run), folder, first)
    return problem


def _find_other_size(size: int | None) -> str:
    """Return what is wrong with a gang of another size than the job asks for; it would train something else."""
    asked = os.environ.pop("MUSTER_WORLD_SIZE", "")
    if not asked or size is None or size == int(asked):
        return ""
    return (
        f"the gang that torchrun formed has {size} of {asked} ranks. It leaves out a node whose clock is seconds "
        "behind: compare the clocks of the nodes (timedatectl), and have NTP set them"
    )


def start_program(command: list[str]) -> int:
    """Start the user's command as a child in this process's group; return its process id.

    The signals of the group reach it by themselves, and do not end this process.
    """
    # A signal that comes while the program starts reaches it afterwards.
    signal.pthread_sigmask(signal.SIG_BLOCK, _OUTLIVED)
    pid = os.fork()
    if pid == 0:
        _execute(command)
    for number in _OUTLIVED:
        signal.signal(number, lambda received, _frame: _received.append(received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OUTLIVED)
    return pid


def main(argv: list[str]) -> int:
    """Run ``argv[2:]`` as one rank; return its exit code (128 + signal when a signal ended it)."""
    events, command = argv[1], [_fill_checkpoint_dir(item) for item in argv[2:]]
    rank = first_number(os.environ, ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "NODE_RANK"))
    size = first_number(os.environ, ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "NNODES"))
    local = first_number(os.environ, ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"))
    base = int(os.environ.get("MUSTER_ATTEMPT_BASE", "1"))
    counter = os.environ.get("MUSTER_ATTEMPT_COUNTER")
    attempt = _count_attempt(counter, base, local) if counter else base
    os.environ["MUSTER_ATTEMPT"] = str(attempt)
    # One life of the gang: torchrun takes a new port for each, mpirun a new namespace.
    place = os.environ.get("PMIX_NAMESPACE") or f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    # A command uses the same address in every start.
    gang = f"{base}/{place}"
    common = {"rank": rank, "local_rank": local, "attempt": attempt, "gang": gang}
    kind, problem = "GangError", _find_other_size(size)
    if not problem:
        run = os.path.dirname(events)
        kind, problem = "CheckpointError", _find_lost_mount(run, first=attempt == base)
        problem = problem or _bring_checkpoints(run, gang, first=attempt == 1)
    _open_output(base, attempt, rank)
    if problem:
        print(f"muster.{kind}: {problem}", file=sys.stderr)
        _append_event(events, {"kind": "worker_started", **common, "world_size": size, "pid": os.getpid()})
        _append_event(events, {"kind": "worker_exit", **common, "exit_code": 1, "signal": 0})
        return 1
    _log_nccl(attempt, rank)
    _load_secrets(os.environ.pop("MUSTER_SECRETS_FILE", ""))
    # What the program prints at once belongs to this attempt: lines are dated when they are printed.
    began = time.time()
    pid = start_program([*command, *_list_resume_args()])
    _append_event(events, {"at": began, "kind": "worker_started", **common, "world_size": size, "pid": pid})
    code, number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0
    if code < 0:
        code, number = 128 - code, -code
    # One that was asked to end, because another failed, begins again with the gang, whatever its exit code.
    stopped = {"stopped": True} if _received else {}
    _append_event(events, {"kind": "worker_exit", **common, "exit_code": code, "signal": number, **stopped})
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


if __name__ == "__main__":
    sys.exit(main(sys.argv))
