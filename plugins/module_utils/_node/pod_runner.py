# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node of a gang in a pod: looks at the ground, finds the first node, runs the launcher, tells how it ended.

The launcher's exit code is the container's, unless ranks here failed by themselves: then the first of them decides, so
that a policy on exit codes sees what the program said and not what its launcher made of it. A pod that was told to stop
ends with 143 whatever the program made of it.

This is a private utility of the collection; it may change without notice.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import time
import typing as t

from . import pod_discovery, pod_fence, pod_mpi, pod_preflight, pod_ray, processes, torch_warm, usage
from .pod_log import Output, Tail

EXIT_UNREACHABLE = 69
_STOPPED = 143
_TICK_S = 0.2
# With fatal exit codes, a node that was only taken along leaves the first word to the one that was not.
_AFTER_YOU_S = 3.0
_WAITING_S = 30.0


class Pod:
    """Brings up and watches one node of the gang that ``spec`` describes."""

    def __init__(self, spec: dict[str, t.Any], program: pathlib.Path) -> None:
        self.spec = spec
        self.program = program
        self.run_dir = pathlib.Path(spec.get("run_dir") or pod_preflight.RUN_DIR)
        self.place = pod_preflight.place(spec, os.environ)
        self.output = Output(self.place.about())
        self.marker = f"{spec['run_id']}/{self.place.attempt}/{self.place.pod}"
        self.meeting: pod_discovery.Meeting | None = None
        self.fence: pod_fence.Fence | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.attendance: pod_ray.Attendance | None = None
        self.secret_names: frozenset[str] = frozenset()
        self.stopping = ""
        self.failed: list[int] = []
        self.fatal = 0
        self.wake, writer = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_unused: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_unused: self._ask_stop("asked to stop"))
        self.sampler = usage.Sampler()
        self.tails = {name: Tail(self.run_dir / f"{name}.jsonl") for name in ("events", "metrics", "usage")}
        self.done: pod_mpi.Done | None = None
        self.since = time.monotonic()
        self.news_at = 0.0

    def run(self) -> int:
        """Run to the end; return the container's exit code."""
        try:
            env = self._prepare()
            address = self._meet()
            self._start(self._environment(env, address))
        except pod_preflight.Refusal as exc:
            return self._refused(str(exc), exc.code)
        except TimeoutError as exc:
            code = _STOPPED if self.stopping else EXIT_UNREACHABLE
            return self._refused(f"the gang could not form: {exc}", code)
        code = self._watch()
        if code == 0:
            self._receive_the_rest()
        self._clear()
        code = self._proven(self._exit_code(code))
        self.output.mark("events", self._event("agent_exit", exit_code=code, detail=self.stopping))
        return code

    def _refused(self, problem: str, code: int) -> int:
        self.output.say(f"node {self.place.rank} ({self.place.node}): {problem}")
        self.output.mark("events", self._event("pod_refused", exit_code=code, detail=problem))
        return code

    def _prepare(self) -> dict[str, str]:
        """Make everything ready that needs no other node; return the variables of the secrets."""
        env, hidden = pod_preflight.secrets(self.spec.get("secrets", ()))
        self.output.hide(hidden)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        if self.spec.get("archive"):
            pod_preflight.unpack(pathlib.Path(self.spec["archive"]), self.run_dir)
        pod_preflight.write_files(self.spec.get("files", {}), self.run_dir)
        self.secret_names = frozenset(env)
        if env:
            self._write_secret_env(env)
        pod_preflight.check_disk(pathlib.Path(self.spec["checkpoint_dir"]), int(self.spec.get("free_bytes", 0)))
        if self.spec.get("keep_logs"):
            if self.spec.get("ray"):
                self.place = pod_ray.numbered(self.spec, self.place)
                self.output.about = self.place.about()
            name = f"attempt-{self.place.attempt}/{self.place.rank}-{self.place.node}.log"
            self._keep(pathlib.Path(self.spec["keep_logs"]), name)
        found = pod_preflight.devices()
        for warning in pod_preflight.check_devices(self.spec, found):
            self.output.say(f"warning: {warning}")
        self.output.mark("events", self._event("pod_ready", **found))
        return env

    def _keep(self, kept: pathlib.Path, name: str) -> None:
        """Keep this attempt's words beside the checkpoints, and see that it is this pod's to run there."""
        self.output.keep(kept / name)
        started = f"{self.place.uid or self.place.pod}.started"
        if not pod_fence.first_start(kept / f"attempt-{self.place.attempt}" / started):
            # A machine that took another's name starts the pods that were bound to that one; an operator may make a new
            # pod of the same name, which is another one.
            raise pod_preflight.Refusal("this pod has run before, on a machine that is gone", EXIT_UNREACHABLE)
        life = (int(self.spec.get("begun", 0)), self.place.attempt)
        self.fence = pod_fence.Fence(kept.parent / pod_fence.NEWEST, life, self.output.say)
        if self.fence.passed:
            raise pod_preflight.Refusal(f"attempt {self.fence.passed} of the run has begun", EXIT_UNREACHABLE)

    def _write_secret_env(self, env: t.Mapping[str, str]) -> None:
        """For ranks that another program than this one starts (an sshd does not hand its environment on)."""
        place = self.run_dir / "secrets.json"
        place.touch(mode=0o600)
        place.write_text(json.dumps(env), encoding="utf-8")

    def _meet(self) -> str:
        """Return the first node's address. The first one starts at once and is found by the others."""
        run = {"run_id": self.spec["run_id"], "attempt": self.place.attempt}
        others = int(self.spec["nodes"]) > 1 and self.spec.get("coordinator")
        if not others or self.spec.get("role") == "launcher":
            return self.place.address
        port = int(self.spec["port"]) + 1
        if self.place.rank == 0:
            self.meeting = self._open(port, run)
            return self.place.address
        me = {"rank": self.place.rank, "node": self.place.node}
        until = time.monotonic() + float(self.spec["wait_s"])
        return pod_discovery.find(
            self.spec["coordinator"], port, me, run, until, self._pause, self.output.say, self.since
        )

    def _open(self, port: int, run: t.Mapping[str, t.Any]) -> pod_discovery.Meeting:
        """Listen for the others. On the node's own network the attempt before may still be leaving the port."""
        host = "::" if ":" in self.place.address else "0.0.0.0"
        until = time.monotonic() + float(self.spec["grace_s"]) + _WAITING_S
        while True:
            try:
                return pod_discovery.Meeting(self.spec.get("listen") or host, port, run)
            except OSError as exc:
                if time.monotonic() > until or not self._pause(1.0):
                    raise pod_preflight.Refusal(f"port {port} is taken: {exc.strerror}", EXIT_UNREACHABLE) from exc

    def _pause(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < end:
            self._tick(end - time.monotonic())
        return not self.stopping

    def _environment(self, secret: t.Mapping[str, str], address: str) -> dict[str, str]:
        """Return what the launcher gets: this pod's, the gang's, the node's own, and the user's word last."""
        spec, place = self.spec, self.place
        # An IPv6 address cannot be told from its port by every launcher: there the name has to do.
        host = str(spec["coordinator"]) if ":" in address and spec.get("coordinator") else address
        own = {
            "MUSTER_NODE": place.node,
            "MUSTER_ATTEMPT": str(place.attempt),
            "MUSTER_ATTEMPT_BASE": str(place.attempt),
            "MUSTER_ATTEMPT_COUNTER": str(self.run_dir / f"attempts-{place.attempt}"),
            "NODE_RANK": str(place.rank),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(spec["port"]),
            processes.MARKER: self.marker,
        }
        leads = pod_preflight.interface(address)
        if leads:
            own.update({"NCCL_SOCKET_IFNAME": f"={leads}", "GLOO_SOCKET_IFNAME": leads})
        values = {"address": host, "rank": str(place.rank), "attempt": str(place.attempt), "own": place.address}
        values["first"] = str(int(place.rank == 0))
        given = {key: _fill(str(text), values) for key, text in spec["env"].items()}
        # No rank above the launcher: libraries that discover MPI would believe it.
        inherited = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        return {**inherited, **own, **given, **secret, **spec.get("user_env", {})}

    def _start(self, env: dict[str, str]) -> None:
        places = {"{program}": str(self.program), "{run_dir}": str(self.run_dir)}
        argv = [_replace(str(item), places) for item in self.spec["argv"]]
        workdir = _replace(self.spec["workdir"], places)
        if self.spec.get("ssh"):
            rank = [_replace(str(item), places) for item in self.spec["ssh"].get("argv", ())]
            # Secrets are in a file of their own, which the rank reads.
            shown = {key: value for key, value in env.items() if key not in self.secret_names}
            pod_mpi.place(self.spec["ssh"], self.run_dir, rank, workdir, shown)
            if self.spec["ssh"].get("done"):
                self.done = pod_mpi.Done(str(self.spec["ssh"]["done"]), int(self.spec["ssh"]["ranks"]))
                self.output.sift = self.done.sift
            if self.spec["ssh"].get("hosts"):
                until = time.monotonic() + float(self.spec["wait_s"])
                pod_mpi.meet(self.spec["ssh"], until, self._pause, self.output.say)
        if self.spec.get("ray"):
            found = pod_ray.workers(self.spec["ray"], float(self.spec["wait_s"]))
            self.output.mark("events", self._event("ray_workers", **found))
            self.attendance = pod_ray.Attendance(self.spec["ray"], self.run_dir / "events.jsonl", self.place.attempt)
        if env.get("MUSTER_METRICS_FILE"):
            # The drivers of a Ray job share one file: each tells what comes after it began.
            self.tails["metrics"] = Tail(pathlib.Path(env["MUSTER_METRICS_FILE"]), new=bool(self.spec.get("ray")))
        if self.spec.get("warm"):
            fork_server = [_replace(str(item), places) for item in self.spec["warm"]]
            env.update(torch_warm.start_fork_server(fork_server, env, workdir, self.run_dir / "warm", None))
        try:
            self.child = subprocess.Popen(
                argv,
                cwd=workdir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as exc:
            what = argv[0] if exc.filename == argv[0] else f"in the folder {exc.filename}"
            raise pod_preflight.Refusal(f"cannot run {what}: {exc.strerror}", 127) from exc
        os.set_blocking(self._pipe(), False)
        self.output.mark("events", self._event("agent_started", detail=" ".join(argv[:4])))

    def _watch(self) -> int:
        child = t.cast("subprocess.Popen[bytes]", self.child)
        told = time.monotonic() + _WAITING_S
        kill_at: float | None = None
        while child.poll() is None:
            self._tick(_TICK_S)
            if time.monotonic() - self.news_at > _TICK_S / 2:
                self._news()
            if time.monotonic() > told:
                told = time.monotonic() + 2 * _WAITING_S
                self._check_attendance()
            if self.fence is not None and self.fence.passed and not self.stopping:
                # What it would save now is no longer its own to write.
                kill_at = self._fenced()
            if self.stopping and kill_at is None:
                kill_at = time.monotonic() + float(self.spec["grace_s"])
                self._forward()
            if kill_at is not None and time.monotonic() > kill_at:
                if not (self.fence and self.fence.passed):
                    self.output.say(f"killed: it did not end within {self.spec['grace_s']} s")
                processes.kill_group(child.pid, signal.SIGKILL)
                processes.kill_marked(self.marker)
                child.wait()
        code = child.returncode
        return 128 - code if code < 0 else code

    def _fenced(self) -> float:
        newer = t.cast(pod_fence.Fence, self.fence).passed
        self._ask_stop(f"attempt {newer} of the run has begun")
        self.output.say(f"{self.stopping}: this one ends")
        return time.monotonic()

    def _forward(self) -> None:
        """Hand the wish to stop on, so that the program can save."""
        child = t.cast("subprocess.Popen[bytes]", self.child)
        self.output.say(f"{self.stopping}: the program has {self.spec['grace_s']} s")
        if self.spec["policy"] == "torchrun":
            # torchrun hands the signal on to its ranks, which are in sessions of their own.
            child.terminate()
        else:
            processes.kill_group(child.pid, signal.SIGTERM)

    def _check_attendance(self) -> None:
        """Say who is missing, and give up when somebody is for too long. An elastic gang waits for nobody."""
        if self.meeting is None or self.spec.get("elastic"):
            return
        missing = [rank for rank in range(1, int(self.spec["nodes"])) if rank not in self.meeting.seen]
        if not missing:
            return
        waited = time.monotonic() - self.since
        names = ", ".join(str(rank) for rank in missing[:8]) + ("…" if len(missing) > 8 else "")
        self.output.say(f"node ranks {names} of {self.spec['nodes']} have not come after {waited:.0f} s")
        if waited > float(self.spec["wait_s"]):
            self.failed.append(EXIT_UNREACHABLE)
            self._ask_stop("gave up waiting for the other nodes")

    def _receive_the_rest(self) -> None:
        """Stay until every other node has found this one: a command may be done before they have come."""
        until = time.monotonic() + float(self.spec["wait_s"])
        while self.meeting is not None and len(self.meeting.seen) < int(self.spec["nodes"]) - 1:
            if self.spec.get("elastic") or time.monotonic() > until or not self._pause(_TICK_S):
                return

    def _clear(self) -> None:
        """End what the launcher left behind and pass on the last lines."""
        processes.kill_marked(self.marker)
        problem = self.attendance.finish() if self.attendance is not None else ""
        if problem:
            self.output.say(f"Ray Train cannot be asked which workers it trained with: {problem}")
        self._read()
        self._news()
        self.output.flush()
        if self.child is not None and self.child.stdout is not None:
            self.child.stdout.close()

    def _exit_code(self, code: int) -> int:
        if self.fatal:
            return self.fatal
        if self.stopping:
            return self.failed[0] if self.failed else _STOPPED
        code = self.failed[0] if self.failed and code != 0 else code
        if code and self.spec.get("fatal_exit_codes") and int(self.spec["nodes"]) > 1:
            time.sleep(_AFTER_YOU_S)
        return code

    def _proven(self, code: int) -> int:
        """Return the code of an end that the ranks bear out: mpirun's 0 may hide ranks that were lost."""
        problem = self.done.problem() if self.done is not None and code == 0 else ""
        if not problem:
            return code
        self.output.say(problem)
        # Nobody says here on which node they were.
        self.output.mark("events", {**self._event("node_lost", detail=problem), "node": None})
        return 1

    def _news(self) -> None:
        """Pass on what the ranks recorded."""
        self.news_at = time.monotonic()
        self.sampler.write(self.run_dir / "usage.jsonl", self.place.node)
        for stream, tail in self.tails.items():
            for line in tail.lines():
                self.output.mark(stream, line)
                started = stream == "events" and line.get("kind") == "worker_started"
                if started and self.fence and self.attendance and isinstance(line.get("attempt"), int):
                    self.fence.begin(line["attempt"])
                if stream == "events" and line.get("kind") == "worker_exit":
                    self._rank_ended(line.get("exit_code"))

    def _rank_ended(self, code: t.Any) -> None:
        if not isinstance(code, int) or code in (0, _STOPPED) or self.stopping:
            return
        self.failed.append(code)
        if code in self.spec.get("fatal_exit_codes", ()):
            self.fatal = code
            # A launcher that restarts ranks would start this one again.
            self._ask_stop(f"exit code {code} is fatal")

    def _tick(self, seconds: float) -> None:
        """Wait for output, a signal or the time; reap what was orphaned to us as the pod's first process."""
        wait = [self.wake] + ([self._pipe()] if self.child is not None else [])
        ready = select.select(wait, [], [], max(0.0, seconds))[0]
        if len(ready) > (self.wake in ready) and not self._read():
            # The launcher closed its output and still runs: nothing to wait for but the time.
            time.sleep(min(_TICK_S, max(0.0, seconds)))
        if self.wake not in ready:
            return
        os.read(self.wake, 4096)
        own = self.child.pid if self.child else 0
        for pid in processes.dead_children(os.getpid()):
            if pid != own:
                os.waitpid(pid, os.WNOHANG)

    def _read(self) -> bool:
        """Pass on what the program printed; return False at the end of its output."""
        while True:
            try:
                data = os.read(self._pipe(), 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.output.program(data)

    def _pipe(self) -> int:
        child = t.cast("subprocess.Popen[bytes]", self.child)
        return t.cast("t.IO[bytes]", child.stdout).fileno()

    def _ask_stop(self, why: str) -> None:
        self.stopping = self.stopping or why

    def _event(self, kind: str, **values: t.Any) -> dict[str, t.Any]:
        return {"at": time.time(), "kind": kind, "node": self.place.node, "attempt": self.place.attempt, **values}


def _fill(text: str, values: t.Mapping[str, str]) -> str:
    return _replace(text, {f"{{{key}}}": value for key, value in values.items()})


def _replace(text: str, values: t.Mapping[str, str]) -> str:
    """Replace our own placeholders; other braces are the user's."""
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def main(spec: dict[str, t.Any], program: pathlib.Path) -> int:
    """Run the node; return the container's exit code."""
    try:
        return Pod(spec, program.parent).run()
    except pod_preflight.Refusal as exc:
        print(f"muster: {exc}", flush=True)
        return exc.code
