# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fork server of a node's ranks (``restart.warm``): a process that has imported torch and forks them.

Run by the job's Python beside torchrun, with the environment that torchrun has: ``PYTHON -u torch_forkserver.py
COMMAND...``. COMMAND is the program of a rank, ``PYTHON -u FILE ARGUMENTS`` or ``PYTHON -u -m MODULE ARGUMENTS``; this
process becomes nothing else. MUSTER_WARM names the socket, in a folder of this user alone.

``rank.py``, which torchrun has started, connects and sends its environment, folder, umask and outputs. The server forks
the program into a session of its own and answers with its number. It sends the program's group the signals that come
over the connection, reports the wait status, and kills the group when the connection ends: ``rank.py`` was killed. The
kernel kills the programs when the server dies.

Nothing of CUDA may be initialised before the fork; importing torch and torch._dynamo initialises nothing.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import json
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
import types
import typing as t
import warnings

_NUMBER = struct.Struct("!i")
# A rank sends its request as soon as it has connected.
_REQUEST_S = 10.0
_PR_SET_PDEATHSIG = 1
# Variables that Python, the C library or a library of linear algebra has read by the time that torch is imported.
_READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "OPENBLAS_")


class RankRequest(t.NamedTuple):
    """What a rank asks for; ``outputs`` are its standard input, output and error output."""

    command: list[str]
    env: dict[str, str]
    cwd: str
    umask: int
    cpus: list[int]
    outputs: list[int]


class ForkServer:
    """Forks a program for every rank that asks, and looks after it until it has ended."""

    def __init__(self, listener: socket.socket, command: list[str], env: t.Mapping[str, str]) -> None:
        self._listener, self._command, self._env = listener, command, dict(env)
        self._cpus = sorted(os.sched_getaffinity(0))
        # The connection of each program's rank, by the program's process id.
        self._links: dict[int, socket.socket] = {}
        self._wake = open_wake_pipe()

    def serve(self) -> RankRequest | None:
        """Serve for ever. Returns in a forked process only, with what that one is to run."""
        while True:
            sources: list[int | socket.socket] = [self._wake[0], self._listener, *self._links.values()]
            ready = select.select(sources, [], [])[0]
            if self._wake[0] in ready:
                os.read(self._wake[0], 4096)
            # First of all: the number of a program that was waited for may be another process's.
            self._report_ended()
            for pid, link in list(self._links.items()):
                if link in ready:
                    self._forward_signals(pid, link)
            if self._listener in ready:
                request = self._accept()
                if request is not None:
                    return request

    def accepts(self, request: RankRequest) -> bool:
        """Return whether a fork of this process is what the rank would get by executing its command."""
        return (
            request.command == self._command
            and request.cpus == self._cpus
            and read_at_start(request.env) == read_at_start(self._env)
        )

    def _report_ended(self) -> None:
        for pid in list(self._links):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with contextlib.suppress(OSError), self._links.pop(pid) as link:
                    link.sendall(_NUMBER.pack(status))

    def _forward_signals(self, pid: int, link: socket.socket) -> None:
        try:
            numbers = link.recv(16)
        except OSError:
            numbers = b""
        for number in numbers or bytes([signal.SIGKILL]):
            with contextlib.suppress(OSError):
                os.killpg(pid, number)
        if not numbers:
            os.waitpid(pid, 0)
            self._links.pop(pid).close()

    def _accept(self) -> RankRequest | None:
        """Answer a rank; return its request in the process that was forked for it."""
        link = self._listener.accept()[0]
        link.settimeout(_REQUEST_S)
        try:
            request = receive_request(link)
            link.setblocking(False)
        except (OSError, ValueError, TypeError):
            link.close()
            return None
        pid = -1
        if self.accepts(request) and not has_hung_up(link):
            with contextlib.suppress(OSError):
                pid = fork()
        if pid == 0:
            self._leave(link)
            return request
        for descriptor in request.outputs:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            link.sendall(_NUMBER.pack(max(0, pid)))
        if pid > 0:
            self._links[pid] = link
        else:
            link.close()
        return None

    def _leave(self, link: socket.socket) -> None:
        """Let go, in a forked process, of everything that is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for connection in (link, self._listener, *self._links.values()):
            connection.close()
        for descriptor in self._wake:
            os.close(descriptor)


def open_wake_pipe() -> tuple[int, int]:
    """Return a pipe that can be read as soon as a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_unused: None)
    return reader, writer


def listen(path: str) -> socket.socket:
    """Return the server's socket, by way of its folder: an address has room for 107 bytes only."""
    folder = os.open(os.path.dirname(path), os.O_PATH)
    name = os.path.basename(path)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"/proc/self/fd/{folder}/{name}")
        listener.listen(1024)
    finally:
        os.close(folder)
    return listener


def read_at_start(env: t.Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are read once, while a process starts or imports torch."""
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


def receive_request(link: socket.socket) -> RankRequest:
    """Return the request that a rank sends.

    :raises OSError: the rank has closed the connection, or takes too long.
    :raises ValueError: it sent something else.
    """
    outputs = array.array("i")
    head, ancillary = link.recvmsg(_NUMBER.size, socket.CMSG_SPACE(3 * outputs.itemsize))[:2]
    for _level, _kind, data in ancillary:
        outputs.frombytes(data)
    text = b""
    size = _NUMBER.unpack(head.ljust(_NUMBER.size, b"\0"))[0]
    while len(text) < size:
        piece = link.recv(size - len(text))
        if not piece:
            raise ConnectionResetError("the rank has closed the connection")
        text += piece
    return RankRequest(**json.loads(text), outputs=outputs.tolist())


def has_hung_up(link: socket.socket) -> bool:
    """Return whether a rank that waited for this server has given up."""
    try:
        return not link.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def fork() -> int:
    """Fork; a new process leads a session of its own and dies with this one.

    :raises OSError: the node has no room for another process of this size.
    """
    server = os.getpid()
    with warnings.catch_warnings():
        # Of threads: those of linear algebra libraries, which know how to be forked, are the only ones yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)
    return pid


def run_program(request: RankRequest) -> t.NoReturn:
    """Be the program of a rank, as ``PYTHON -u …`` started by ``exec`` would be. Ends as Python itself ends."""
    for descriptor, place in zip(request.outputs, (0, 1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.umask(request.umask)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    sys.orig_argv[:] = request.command
    set_command_line(request.command)
    draw_new_seeds()
    code: t.Any = 0
    try:
        if request.command[2] == "-m":
            run_module(request.command[3], request.command[4:])
        else:
            run_file(request.command[2], request.command[3:])
    except SystemExit as exc:
        code = exc.code
    except BaseException as exc:
        # The frames above the program belong to this module: the user sees only the frames of the program.
        own = exc.__traceback__
        while own and (own.tb_frame.f_globals is globals() or own.tb_frame.f_globals.get("__name__") == "runpy"):
            own = own.tb_next
        sys.excepthook(type(exc), exc.with_traceback(own), own)
        code = 130 if isinstance(exc, KeyboardInterrupt) else 1
    # The interpreter's own end: it prints an exit code that is not a number, waits for threads, calls exit functions.
    raise SystemExit(code)


def run_file(place: str, arguments: list[str]) -> None:
    """Run a Python file as ``python FILE ARGUMENTS`` does."""
    sys.argv = [place, *arguments]
    set_first_path(os.path.dirname(os.path.realpath(place)))
    path = os.path.abspath(place)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(
        __file__=path, __loader__=loader, __builtins__=__builtins__, __spec__=None, __cached__=None
    )
    if "__annotations__" in globals():
        # Up to Python 3.13 the main module has some from the start.
        main_module.__dict__["__annotations__"] = {}
    sys.modules["__main__"] = main_module
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main_module.__dict__)


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module as ``python -m NAME ARGUMENTS`` does."""
    sys.argv = [name, *arguments]
    set_first_path(os.getcwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def set_first_path(folder: str | None) -> None:
    """Add the folder that Python searches first for a program's sake, or remove it; there is none with ``-P``."""
    if getattr(sys.flags, "safe_path", False):
        return
    if folder is None:
        del sys.path[0]
    else:
        sys.path.insert(0, folder)


def draw_new_seeds() -> None:
    """Give this process its own random numbers, as an import of its own would have."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def set_command_line(command: t.Sequence[str]) -> None:
    """Let ``ps`` show ``command`` for this process, as far as there is room; what cannot be shown stays."""
    text = b"\0".join(item.encode(errors="surrogateescape") for item in command) + b"\0"
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        if 0 < begin < end:
            room = end - begin
            ctypes.memmove(begin, text[: room - 1].ljust(room, b"\0"), room)


def main(argv: list[str]) -> int:
    """Import torch, then fork programs; return 1 when torch cannot be imported: ranks execute their command then."""
    # This file's neighbours must not stand in for packages of the same name.
    set_first_path(None)
    env = dict(os.environ)
    listener = listen(os.environ.pop("MUSTER_WARM"))
    try:
        for name in ("torch", "torch._dynamo"):
            importlib.import_module(name)
    except ImportError as exc:
        print(f"muster: the fork server cannot import torch, ranks start without it: {exc}", file=sys.stderr)
        return 1
    # What was imported is never garbage: a program that looks for some would copy all of its memory.
    gc.freeze()
    # As rank.py names it in the command of a rank.
    folder = env.get("MUSTER_CHECKPOINT_DIR", "{checkpoint_dir}")
    request = ForkServer(listener, [item.replace("{checkpoint_dir}", folder) for item in argv[1:]], env).serve()
    if request is not None:
        run_program(request)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
