# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor of one unit (the agent, or the rendezvous store) of one run on one node.

It outlives the SSH connection and the controller. It writes to the unit's folder: ``state.json`` (processes and restart
counts), ``heartbeat`` (touched every second), ``log`` (output of the process) and, at the end, ``exit.json``.
Under systemd it is the main process of a transient unit, whose cgroup and limits hold; elsewhere it is detached.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import resource
import select
import signal
import socket
import subprocess
import time
import typing as t

from . import files, host_restart_policy, host_units, processes, secret_mask

if t.TYPE_CHECKING:
    from . import full_disk, host_full_disk, host_output, host_unit_care
    from .host_units import UnitSpec

_TICK_S = 1.0
# So much of the disk is held back, so that an end can be recorded on a full one; with less the disk counts as full.
_RESERVE, _FULL = 256 << 10, 1 << 20
# A rendezvous store without any agent ends after this long.
_UNUSED_S = 5.0
# Its own processes: torch_store.py, and the one that serves.
_MOST_OF_STORE = 8
# Where torchrun writes the exception that ended it (torch.distributed.elastic.multiprocessing.errors).
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_RENDEZVOUS = {"RendezvousClosedError": "closed", "RendezvousTimeoutError": "timeout"}
# So long may a launcher take to end whose ranks have all ended: torchrun waits minutes for those of other nodes.
_WITHOUT_RANKS_S = 2.0


class Supervisor:
    """Starts, watches and ends the process that ``spec`` describes (see ``host_units.py`` for its fields)."""

    def __init__(self, spec: UnitSpec) -> None:
        self.spec = spec
        self.folder = pathlib.Path(spec["folder"])
        self.events = pathlib.Path(spec["events"])
        state = files.read_json(self.folder / "state.json") or {}
        same = state.get("generation") == spec["generation"]
        self.crashes = int(state.get("crashes", 0)) if same else 0
        # This supervisor starts where one of the same generation died: the node, or the agent's unit, was lost.
        self.lost = int(state.get("lost", 0)) + 1 if same else 0
        self.deadline = state.get("deadline") if same else None
        self.child: subprocess.Popen[bytes] | None = None
        self.listener: socket.socket | None = None
        self.stopping: str = ""
        self.log_size = 0
        self.events_at = 0
        self.unused_since: float | None = None
        # What of the program's files was there when it was started.
        self.needed: list[str] = []
        self.output: host_output.UnitOutput | None = None
        self.care: host_unit_care.UnitCare | None = None
        self.disk: host_full_disk.FullDiskWatch | None = None
        self.full: full_disk.FullEnd | None = None

    def run(self) -> int:
        """Run until the unit has ended; return 0 (the unit's own exit code is in ``exit.json``)."""
        with contextlib.suppress(OSError):
            # So that orphans of a killed agent can be waited for.
            processes.adopt_orphans(True)
        wake = _wake_pipe()
        signal.signal(signal.SIGTERM, lambda *_unused: self._ask_stop("cancelled"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        processes.kill_marked(self.spec["marker"])
        with contextlib.suppress(OSError):
            (self.folder / "reserve").write_bytes(bytes(_RESERVE))
        self._watch_output()
        if self.lost > self.spec["max_lost"]:
            return self._end(137, "node_lost")
        if self.lost:
            self._event("agent_restart", detail="node_lost")
        if self.deadline is None and self.spec["timeout_s"]:
            self.deadline = time.time() + self.spec["timeout_s"]
        problem = self._listen()
        if problem:
            self._write_state("failed", problem)
            return self._end(98, "port_taken", problem)
        while True:
            if not self._wait_for_peer(wake) or self.stopping:
                return self._end(143 if self.stopping else 111, self.stopping or "rendezvous_unreachable")
            self._start()
            ending = self._wait_for_end(wake)
            processes.kill_marked(self.spec["marker"])
            if self._is_node_shutdown():
                return self._end_for_shutdown()
            if self.stopping:
                full = self.full if self.stopping == "disk_full" else None
                codes = {"timeout": 124, "finished": 0, "fatal_exit_code": self._fatal_code()}
                code = full.exit_code if full else codes.get(self.stopping, 143)
                return self._end(code, self.stopping, full.detail if full else "")
            decision = self._decide(ending)
            if not decision.restart:
                return self._end(decision.exit_code, decision.cause)

    def _decide(self, ending: host_restart_policy.Ending) -> host_restart_policy.Decision:
        budget = host_restart_policy.Budget(
            self.crashes,
            self.lost,
            self.spec["max_crashes"],
            self.spec["max_lost"],
            tuple(self.spec["fatal_exit_codes"]),
            self.spec["launcher_restarts"],
        )
        decision = host_restart_policy.decide(self.spec["policy"], ending, budget)
        if decision.restart:
            self.lost += decision.cause == "node_lost"
            self.crashes += decision.cause == "crash"
            self._event("agent_restart", detail=decision.cause, exit_code=ending.exit_code)
        return decision

    def _watch_output(self) -> None:
        if self._is_agent:
            from . import host_output

            forms = self.spec.get("forms") or {}
            self.output = host_output.UnitOutput(self.folder / "log", self.events.parent, forms)
            self.output.start()

    def _listen(self) -> str:
        """Bind the store's port; return the problem, empty when there is none."""
        where = self.spec.get("listen")
        end = time.monotonic() + host_units.PORT_S
        while where:
            try:
                family = socket.getaddrinfo(where["host"], where["port"], type=socket.SOCK_STREAM)[0][0]
                self.listener = socket.socket(family, socket.SOCK_STREAM)
                self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.listener.bind((where["host"], where["port"]))
                self.listener.listen(1024)
                return ""
            except OSError as exc:
                problem = f"cannot listen on {where['host']}:{where['port']}: {exc.strerror or exc}"
                if exc.errno != errno.EADDRINUSE or self.stopping or time.monotonic() > end:
                    return problem
            # What has just ended may hold it a moment longer.
            self._write_state("waiting", problem)
            time.sleep(0.05)
        return ""

    def _wait_for_peer(self, wake: int) -> bool:
        """Wait until the rendezvous store answers, so that its absence does not use up restarts."""
        where = self.spec.get("wait_for")
        end = time.monotonic() + (where or {}).get("seconds", 0)
        announced = False
        while where and not self.stopping:
            try:
                socket.create_connection((where["host"], where["port"]), timeout=2).close()
                return True
            except OSError:
                if time.monotonic() > end:
                    return False
            if not announced:
                self._write_state("waiting", f"for {where['host']}:{where['port']}")
                announced = True
            self._tick(wake, 0.2)
        return True

    def _start(self) -> None:
        # A system unit gets no HOME, which Open MPI and every library with a cache folder needs.
        environment = {**files.login_environment(), **os.environ}
        environment.update(self.spec["env"])
        environment[processes.MARKER] = self.spec["marker"]
        if secrets := self.spec.get("secrets"):
            environment.update(files.read_json(pathlib.Path(secrets)) or {})
        if self._is_agent and (rules := self.spec.get("checkpoints")):
            from . import checkpoint_care

            folder = pathlib.Path(rules["folder"]).expanduser()
            for told in checkpoint_care.pass_over(folder, rules, first=bool(rules["first"])):
                self._event("checkpoint_passed_over", detail=told)
        if self.spec["policy"] == "torchrun":
            (self.folder / "error.json").unlink(missing_ok=True)
            environment[_ERROR_FILE] = str(self.folder / "error.json")
        self.needed = self.needed or [
            item for item in self._list_needed() if os.path.isabs(item) and os.path.exists(item)
        ]
        argv = [str(item) for item in self.spec["argv"]]
        keep: tuple[int, ...] = ()
        if self.listener is not None:
            argv = [item.replace("{listen_fd}", str(self.listener.fileno())) for item in argv]
            keep = (self.listener.fileno(),)
        self.events_at = self.events.stat().st_size if self.events.exists() else 0
        limit = self.spec["memory"] if self.spec.get("manager", "detached") == "detached" else None
        with open(self.folder / "log", "ab") as log, _data_limit(limit):
            try:
                self.child = subprocess.Popen(
                    argv,
                    cwd=self.spec["cwd"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=keep,
                    start_new_session=True,
                )
            except OSError as exc:
                log.write(f"muster: cannot run {argv[0]}: {exc.strerror}\n".encode())
                self.child = None
        self._write_state("running")
        self._event("agent_started")
        if self._is_agent:
            # Imported only now: the launcher is at work meanwhile.
            from . import host_full_disk, host_unit_care

            self.care = self.care or host_unit_care.UnitCare(self.spec, self.events_at)
            self.care.begin()
            self.disk = self.disk or host_full_disk.FullDiskWatch(
                self.events.parent, self.folder / "log", self.spec["node"], self.events_at
            )

    def _wait_for_end(self, wake: int) -> host_restart_policy.Ending:
        if self.child is None:
            return host_restart_policy.Ending(127, 0, ((127,),))
        while self.child.poll() is None:
            self._tick(wake, _TICK_S)
            if self.deadline and time.time() > self.deadline:
                self._ask_stop("timeout")
            if self.spec["policy"] == "store" and self._is_store_unused():
                self._ask_stop("finished")
            if self._fatal_code():
                # torchrun would start the rank again: it knows no exit code that must not be repeated.
                self._ask_stop("fatal_exit_code")
            self.full = self.full or (self.disk.find_end() if self.disk else None)
            if self.full:
                self._ask_stop("disk_full")
            if self.stopping and self.child.poll() is None:
                self._stop_child(wake)
        code = self.child.returncode
        return host_restart_policy.Ending(
            128 - code if code < 0 else code,
            max(0, -code),
            self._rank_codes(),
            self._count_unfinished(),
            self._is_agent and _is_full(self.folder),
            self._read_rendezvous(),
        )

    def _read_rendezvous(self) -> str:
        """Return why the rendezvous of torchrun has ended it, empty where it has not."""
        found = files.read_json(self.folder / "error.json") or {}
        said = found.get("message") if isinstance(found, dict) else None
        name = str(said.get("message") if isinstance(said, dict) else said).partition(":")[0]
        return _RENDEZVOUS.get(name, "")

    def _is_store_unused(self) -> bool:
        """Return whether the agent beside the store has ended, and no other node's agent is connected any more."""
        end = files.read_json(self.folder.parent / "agent" / "exit.json")
        port = int((self.spec.get("listen") or {}).get("port", 0))
        over = bool(end) and end.get("generation") == self.spec["generation"]
        # Torch's store is a client of itself.
        own = (
            [self.child.pid, *processes.list_descendants(self.child.pid, _MOST_OF_STORE)] if over and self.child else []
        )
        if not over or processes.count_connections(port, own):
            self.unused_since = None
            return False
        self.unused_since = self.unused_since or time.monotonic()
        return time.monotonic() - self.unused_since > _UNUSED_S

    def _rank_codes(self) -> tuple[tuple[int, ...], ...]:
        """Return for each attempt since the process was started the exit codes of the ranks here."""
        codes: dict[int, list[int]] = {}
        for line in _read_events(self.events, self.events_at):
            if line.get("kind") == "worker_exit":
                codes.setdefault(int(line["attempt"]), []).append(int(line["exit_code"]))
        return tuple(tuple(codes[attempt]) for attempt in sorted(codes))

    def _count_unfinished(self) -> int:
        """Return how many ranks of this process have not recorded their end."""
        kinds = [line.get("kind") for line in _read_events(self.events, self.events_at)]
        return kinds.count("worker_started") - kinds.count("worker_exit")

    def _have_ranks_ended(self) -> bool:
        """Return whether all ranks that torchrun has started here have recorded their end."""
        return self.spec["policy"] == "torchrun" and bool(self._rank_codes()) and self._count_unfinished() <= 0

    def _fatal_code(self) -> int:
        """Return the first exit code of a rank that must end the job, or 0."""
        if not self.spec["fatal_exit_codes"]:
            return 0
        ended = (line for line in _read_events(self.events, self.events_at) if line.get("kind") == "worker_exit")
        return next((int(line["exit_code"]) for line in ended if line["exit_code"] in self.spec["fatal_exit_codes"]), 0)

    def _stop_child(self, wake: int) -> None:
        """Let the launcher stop its ranks, which may save a checkpoint, then kill the remaining processes."""
        child = t.cast("subprocess.Popen[bytes]", self.child)
        self._write_state("stopping", self.stopping)
        if self.spec["policy"] == "torchrun":
            # torchrun forwards the signal to its ranks, which are in sessions of their own.
            child.terminate()
        else:
            processes.kill_group(child.pid, signal.SIGTERM)
        end = time.monotonic() + self.spec["grace_s"]
        while child.poll() is None and time.monotonic() < end:
            self._tick(wake, 0.1)
            if self._have_ranks_ended():
                # Nothing is left that could save.
                end = min(end, time.monotonic() + _WITHOUT_RANKS_S)
        if child.poll() is None:
            processes.kill_marked(self.spec["marker"])
            child.wait()

    def _ask_stop(self, why: str) -> None:
        self.stopping = self.stopping or why

    def _tick(self, wake: int, seconds: float) -> None:
        """Sleep until a signal (a child ended, a stop was requested) or for ``seconds``; reap orphans."""
        if select.select([wake], [], [], seconds)[0]:
            os.read(wake, 4096)
        child = self.child.pid if self.child else 0
        for pid in processes.dead_children(os.getpid()):
            if pid != child:
                os.waitpid(pid, os.WNOHANG)
        self._end_if_replaced()
        self._touch()
        if self.care:
            self.care.record()

    def _end_if_replaced(self) -> None:
        """End silently when the run was removed from this node, or was started again after that."""
        if not (self.folder / "spec.json").exists():
            # This process can no longer be followed or stopped.
            processes.kill_marked(self.spec["marker"])
            os._exit(0)
        state = files.read_json(self.folder / "state.json") or {}
        if processes.living_pid(state.get("supervisor")) not in (None, os.getpid()):
            # The supervisor that replaced this one has killed the processes of this one.
            os._exit(0)

    def _is_node_shutdown(self) -> bool:
        """Return whether the node is shutting down: a cancel writes the file ``stop`` first."""
        return self.stopping == "cancelled" and not (self.folder / "stop").exists()

    def _end_for_shutdown(self) -> int:
        """End without an exit code: the node shuts down, and the run resumes when it is up again."""
        if self.output:
            self.output.close()
        self._write_state("stopped", "the node shut down")
        self._event("agent_stopped", detail="the node shut down")
        return 0

    def _end(self, code: int, cause: str, detail: str = "") -> int:
        if self.care:
            self.care.record_last()
        if self.output:
            # Before the end is known: who reads it reads the last metrics then.
            self.output.close()
        if self.care:
            # After a cancel, storing takes no longer than the job may take to stop.
            self.care.close(self.spec["grace_s"] if self.stopping == "cancelled" else None, self._touch)
        if secrets := self.spec.get("secrets"):
            with contextlib.suppress(OSError):
                secret_mask.end_masks(pathlib.Path(secrets).parents[1], self._touch)
            pathlib.Path(secrets).unlink(missing_ok=True)
        for file in self.spec.get("secret_files", []):
            pathlib.Path(file).unlink(missing_ok=True)
        value = {"at": time.time(), "exit_code": code, "cause": cause, "crashes": self.crashes, "lost": self.lost}
        value["detail"] = detail
        # Without this file the end would count as a lost node: on a full disk, wait for room.
        while not self._write("exit.json", {**value, "generation": self.spec["generation"]}):
            time.sleep(_TICK_S)
        # Before what is held back makes room.
        room = {"room": self._find_room(), "missing": self._find_missing()} if code and self._is_agent else {}
        (self.folder / "reserve").unlink(missing_ok=True)
        self._write_state("ended", detail or cause)
        self._event("agent_exit", exit_code=code, detail=cause, **room)
        return 0

    @property
    def _is_agent(self) -> bool:
        return self.spec["unit"] == "agent"

    def _list_needed(self) -> list[str]:
        """Return what the program is started with and in: its interpreter, environment, folders and files."""
        words = [str(word) for word in (*self.spec["argv"], self.spec["cwd"])]
        environment = pathlib.Path(words[0]).parent.parent / "pyvenv.cfg"
        found = self.spec.get("env", {}).get("PYTHONPATH", "").split(":")
        return list(dict.fromkeys([*words[:1], words[-1], str(environment), *found, *words[1:-1]]))

    def _find_missing(self) -> list[str]:
        """Return what the program needs and had at a start, and is not there any more."""
        folder, program = self.spec["cwd"], str(self.spec["argv"][0])
        always = [folder, *([program] if os.path.isabs(program) else [])]
        there = [*always, *(item for item in self.needed if item not in always)]
        return [item for item in there if not os.path.exists(item)]

    def _find_room(self) -> dict[str, t.Any]:
        """Return the fuller of the disks of the run and of its checkpoints, ``{folder, free_bytes}``."""
        rules = self.spec.get("checkpoints") or {}
        folders = [self.folder, *([pathlib.Path(rules["folder"]).expanduser()] if rules.get("folder") else [])]
        known = [(free, str(folder)) for folder in folders if (free := _free_bytes(folder)) is not None]
        return {"folder": min(known)[1], "free_bytes": min(known)[0]} if known else {}

    def _write_state(self, state: str, detail: str = "") -> None:
        child = self.child.pid if self.child else 0
        self._write(
            "state.json",
            {
                "state": state,
                "detail": detail,
                "supervisor": processes.identity(os.getpid()),
                "child": processes.identity(child) if child else None,
                "generation": self.spec["generation"],
                "crashes": self.crashes,
                "lost": self.lost,
                "deadline": self.deadline,
            },
        )
        self._touch()

    def _write(self, name: str, value: dict[str, t.Any]) -> bool:
        """Write a file of the unit, on a full disk into what was held back; return whether that worked."""
        for _try in range(2):
            try:
                files.write_json(self.folder / name, value)
                return True
            except OSError:
                (self.folder / "reserve").unlink(missing_ok=True)
        return False

    def _touch(self) -> None:
        try:
            (self.folder / "heartbeat").touch()
        except OSError:
            return

    def _event(self, kind: str, **values: t.Any) -> None:
        line = {"at": time.time(), "kind": kind, "node": self.spec["node"], "unit": self.spec["unit"], **values}
        # A full disk must not end the job; state and exit files are tried again with the next change.
        with contextlib.suppress(OSError):
            files.append_json(self.events, line)


def _free_bytes(folder: pathlib.Path) -> int | None:
    """Return the bytes that a program may still write to the disk of a folder, None where that is not known."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    # Some file systems count no blocks.
    return state.f_bavail * state.f_frsize if state.f_blocks else None


def _is_full(folder: pathlib.Path) -> bool:
    """Return whether the disk of a folder has no room left."""
    free = _free_bytes(folder)
    return free is not None and free < _FULL


@contextlib.contextmanager
def _data_limit(limit: int | None) -> t.Iterator[None]:
    """Limit the memory (RLIMIT_DATA) of each process that is started meanwhile, where no systemd limits the unit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = soft if limit is None else limit
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard) if wanted != resource.RLIM_INFINITY else wanted
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _read_events(file: pathlib.Path, offset: int) -> t.Iterator[dict[str, t.Any]]:
    try:
        with open(file, "rb") as handle:
            handle.seek(offset)
            text = handle.read()
    except OSError:
        return
    yield from files.parse_json_lines(text)


def _wake_pipe() -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_unused: None)
    return reader


def main(spec_file: str) -> int:
    """Run the supervisor of the unit whose ``spec.json`` is given."""
    os.umask(0o077)
    spec = files.read_json(pathlib.Path(spec_file))
    return Supervisor(spec).run()
