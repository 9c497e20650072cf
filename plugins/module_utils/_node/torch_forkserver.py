# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks as copies of a process that has imported torch already, so that a start and a restart need not import it.

The agent forks a template as soon as it has imported torch, before it has threads or connections. Asked by the agent,
the template forks a rank: the recorder of ``rank.py``, which forks the process that runs the user's Python file as
``python FILE`` does. The recorder becomes the agent's own child, in a session of its own, exactly as if the agent had
started it by ``exec``. Whatever is not a Python file or module under the agent's own interpreter, and whatever the
template cannot do, is started the ordinary way.

Nothing of CUDA may be initialised before the fork; importing torch initialises nothing.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib.machinery
import io
import json
import os
import random
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
import types
import typing as t
import warnings

from . import processes

_ANSWER_S = 10.0
_LENGTH = struct.Struct("!I")
Recorder = t.Callable[[list[str], t.Callable[[list[str]], None]], int]


class Process:
    """A rank as torch's agent sees it: the part of ``subprocess.Popen`` that it uses, for a child that we forked."""

    def __init__(self, args: t.Sequence[str], pid: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code (negative for a signal), or None while the process runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # Somebody else waited for it: how it ended is lost, as in subprocess.
                self.returncode = 0
                return 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the process has ended.

        :raises subprocess.TimeoutExpired: it has not within ``timeout`` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            time.sleep(0.01)
        return t.cast(int, self.returncode)

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Template:
    """The agent's side: asks the template process for ranks."""

    def __init__(self, link: socket.socket, interpreter: str) -> None:
        self._link, self._interpreter = link, interpreter

    def start(
        self, args: t.Sequence[str], env: t.Mapping[str, str], stdout: int | None, stderr: int | None
    ) -> Process | None:
        """Return a rank that runs ``args``, or None when it must be started the ordinary way."""
        if self._link.fileno() < 0 or not suits(args, self._interpreter):
            return None
        text = json.dumps({"args": list(args), "env": dict(env), "cwd": os.getcwd()}).encode()
        # A rank begins when it is told to: one that is forked so late that another was started instead never is.
        wait, go = os.pipe()
        places = [1 if stdout is None else stdout, 2 if stderr is None else stderr, wait]
        try:
            # For this moment only: orphans of a rank that ended belong to the supervisor, which waits for them.
            processes.adopt_orphans(True)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", places))
            self._link.sendmsg([_LENGTH.pack(len(text))], [rights])
            self._link.sendall(text)
            pid = _LENGTH.unpack(_exactly(self._link, _LENGTH.size))[0]
            if pid:
                os.write(go, b".")
                return Process(args, pid)
        except OSError:
            # Without a link the template ends.
            self._link.close()
        finally:
            os.close(wait)
            os.close(go)
            with contextlib.suppress(OSError):
                processes.adopt_orphans(False)
        return None


def suits(args: t.Sequence[str], interpreter: str) -> bool:
    """Return whether ``args`` is the recorder of a rank that runs a Python file or module under ``interpreter``."""
    command = list(args[5:])
    if len(args) < 7 or not args[3].endswith("/muster_node/rank.py") or command[:2] != [interpreter, "-u"]:
        return False
    return len(command) > 3 if command[2] == "-m" else command[2].endswith(".py") and os.path.isfile(command[2])


def open_template(interpreter: str, record: Recorder) -> Template:
    """Fork the template; ``record`` is the recorder's main function. Returns in the agent.

    In the process of a rank this never returns: it ends as the user's program does, by ``SystemExit``.

    :raises OSError: the node has no room for another process of this size.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Of threads: those of linear algebra libraries, which know how to be forked, are the only ones yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        template = os.fork()
    if template == 0:
        ours.close()
        _serve(theirs, record)
        os._exit(0)
    theirs.close()
    ours.settimeout(_ANSWER_S)
    return Template(ours, interpreter)


def _serve(link: socket.socket, record: Recorder) -> None:
    """Answer the agent until it is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            space = socket.CMSG_SPACE(3 * array.array("i").itemsize)
            head, ancillary = link.recvmsg(_LENGTH.size, space)[:2]
            if len(head) < _LENGTH.size:
                return
            request = json.loads(_exactly(link, _LENGTH.unpack(head)[0]))
        except OSError:
            return
        places = array.array("i")
        places.frombytes(ancillary[0][2])
        pid = _fork_rank(link, request, places.tolist(), record)
        for descriptor in places:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            link.sendall(_LENGTH.pack(pid))


def _fork_rank(link: socket.socket, request: dict[str, t.Any], places: list[int], record: Recorder) -> int:
    """Fork a rank whose parent, a short-lived child, ends at once: so the rank becomes the agent's child."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork():
            os._exit(0)
        # The agent signals the session as soon as it knows the number.
        os.setsid()
        os.write(writer, _LENGTH.pack(os.getpid()))
        os.close(reader)
        os.close(writer)
        link.close()
        _rank(request, places, record)
    os.close(writer)
    answer = os.read(reader, _LENGTH.size)
    os.close(reader)
    os.waitpid(between, 0)
    return int(_LENGTH.unpack(answer)[0]) if len(answer) == _LENGTH.size else 0


def _rank(request: dict[str, t.Any], places: list[int], record: Recorder) -> t.NoReturn:
    """Be the recorder of one rank, as ``rank.py`` started by ``exec`` would be."""
    *outputs, wait = places
    if not os.read(wait, 1):
        os._exit(0)
    os.close(wait)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for descriptor, place in zip(outputs, (1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    arguments = request["args"]
    retitle(arguments)
    code = 1
    try:
        code = record(arguments[3:], _become)
    except Exception:
        traceback.print_exc()
    # What the template would do at its end is not the recorder's business.
    os._exit(code)


def _become(command: list[str]) -> t.NoReturn:
    """Be the user's program: what follows ``PYTHON -u`` in ``command``. It ends this process as Python's own end."""
    retitle(command)
    _unbuffered()
    _fresh_chances()
    code: t.Any = 0
    try:
        if command[2] == "-m":
            _run_module(command[3], command[4:])
        else:
            _run_file(command[2], command[3:])
    except SystemExit as exc:
        code = exc.code
    except BaseException as exc:
        # The frames above the program are ours, not the user's.
        own = exc.__traceback__
        while own and own.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
            own = own.tb_next
        sys.excepthook(type(exc), exc.with_traceback(own), own)
        code = 130 if isinstance(exc, KeyboardInterrupt) else 1
    # The interpreter's own end: it prints a code that is no number, waits for threads, calls exit functions.
    raise SystemExit(code)


def _run_file(place: str, arguments: list[str]) -> None:
    """Run a Python file as ``python FILE ARGUMENTS`` does."""
    sys.argv = [place, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(place)))
    path = os.path.abspath(place)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __loader__=loader, __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    """Run a module as ``python -m NAME ARGUMENTS`` does."""
    sys.argv = [name, *arguments]
    sys.path.insert(0, os.getcwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _unbuffered() -> None:
    """Write what is printed at once, as ``-u`` has it, whatever the agent's own output does."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        raw = io.FileIO(descriptor, "w", closefd=False)
        now = io.TextIOWrapper(raw, before.encoding, before.errors, newline="\n", write_through=True)
        setattr(sys, name, now)
        setattr(sys, f"__{name}__", now)


def _fresh_chances() -> None:
    """Give this process its own random numbers, as an import of its own would have."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def retitle(command: t.Sequence[str]) -> None:
    """Let ``ps`` show ``command`` for this process, as far as there is room; what cannot be shown stays."""
    text = b"\0".join(item.encode(errors="surrogateescape") for item in command) + b"\0"
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        if 0 < begin < end:
            room = end - begin
            ctypes.memmove(begin, text[: room - 1].ljust(room, b"\0"), room)


def _exactly(link: socket.socket, size: int) -> bytes:
    """Return ``size`` bytes.

    :raises ConnectionResetError: the other side is gone.
    """
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the other side has closed")
        data += piece
    return data
