# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node of a gang in a pod: preflight, discovery of the first node, the launcher until its end."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import functools
import os
import pathlib
import select
import signal
import subprocess
import time
import typing as t

from . import (
    checkpoint_care,
    checkpoints,
    diag_stacks,
    pod_discovery,
    pod_environment,
    pod_fence,
    pod_mpi,
    pod_preflight,
    pod_ray,
    pod_shared,
    pod_store,
    processes,
    rank_transport,
    rank_watch,
    usage,
    versions,
)
from .pod_environment import replace_placeholders
from .pod_exit import EXIT_UNREACHABLE, STOPPED, ExitCode
from .pod_log import Output, Tail

_TICK_S = 0.2
_REPORT_S = 30.0
# Of the time that a program has to save, so much may go for where its ranks stand.
_STACKS_S = 2.0
_STACK_BYTES = 4096


class PodRunner:
    """Starts and follows one node of the gang that ``spec`` describes."""

    def __init__(self, spec: dict[str, t.Any], program: pathlib.Path) -> None:
        self.spec, self.program = spec, program
        self.run_dir = pathlib.Path(spec.get("run_dir") or pod_preflight.RUN_DIR)
        self.identity = pod_preflight.identify_pod(spec, os.environ)
        self.output = Output(self.identity.about())
        self.marker = f"{spec['run_id']}/{self.identity.attempt}/{self.identity.pod}"
        self.discovery: pod_discovery.DiscoveryServer | None = None
        self.care: checkpoint_care.CheckpointCare | None = None
        self.rules: dict[str, t.Any] = dict(spec.get("checkpoints") or {})
        self.shared: pod_shared.FirstPodProof | None = None
        self.writer_guard: pod_fence.SingleWriterGuard | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.attendance: pod_ray.Attendance | None = None
        self.secret_names: frozenset[str] = frozenset()
        self.exit_code = ExitCode(spec.get("fatal_exit_codes") or (), int(spec["nodes"]))
        self.stopping = ""
        # Processes of the ranks here that are running.
        self.ranks: dict[int, int] = {}
        self.wake, writer = os.pipe()
        for end in (self.wake, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_unused: None)
        self.sampler = usage.Sampler()
        self.transport = rank_transport.TransportRecorder(self.run_dir, self.identity.node)
        self.watch = rank_watch.RankWatch(self.run_dir, self.identity.node)
        self.tails = {name: Tail(self.run_dir / f"{name}.jsonl") for name in ("events", "metrics", "usage")}
        self.completions: pod_mpi.RankCompletions | None = None
        self.since, self.forwarded_at = time.monotonic(), 0.0

    def run(self) -> int:
        """Run until the program has ended; return the container's exit code."""
        try:
            return self._run()
        finally:
            if self.shared is not None:
                self.shared.close()

    def _run(self) -> int:
        try:
            env = self._prepare()
            # Until here nothing is to be saved: the first handler ended all at once.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_unused: self._ask_stop("asked to stop"))
            address = self._discover()
            self._start(
                pod_environment.build_environment(self.spec, self.identity, self._own_variables(), env, address)
            )
        except pod_preflight.PodRefusal as exc:
            return self._report_refusal(str(exc), exc.code)
        except TimeoutError as exc:
            code = STOPPED if self.stopping else EXIT_UNREACHABLE
            return self._report_refusal(f"the gang could not form: {exc}", code)
        code = self._watch()
        if code == 0:
            self._wait_for_late_nodes()
        self._clean_up()
        code = self._verify_exit_code(self.exit_code.choose(code, is_stopped=bool(self.stopping)))
        self.output.mark("events", self._event("agent_exit", exit_code=code, detail=self.stopping))
        return code

    def _report_refusal(self, problem: str, code: int) -> int:
        self.output.say(f"node {self.identity.rank} ({self.identity.node}): {problem}")
        self.output.mark("events", self._event("pod_refused", exit_code=code, detail=problem))
        return code

    def _prepare(self) -> dict[str, str]:
        """Prepare this node without the others; return the variables of the secrets."""
        env, hidden = pod_preflight.read_secrets(self.spec.get("secrets", ()))
        self.output.hide(hidden)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        if self.spec.get("archive"):
            pod_preflight.unpack_code(pathlib.Path(self.spec["archive"]), self.run_dir)
        pod_preflight.write_files(self.spec.get("files", {}), self.run_dir)
        self.secret_names = frozenset(env)
        if env:
            pod_preflight.write_secret_env(env, self.run_dir)
        folder = pathlib.Path(self.spec["checkpoint_dir"])
        pod_preflight.require_mounts(self.spec.get("mounts", ()))
        pod_preflight.check_disk(folder, int(self.spec.get("free_bytes", 0)))
        self._use_store(folder)
        pod_preflight.require_checkpoint(folder, self.spec["checkpoints"])
        for told in checkpoint_care.pass_over(folder, self.spec["checkpoints"], first=self.identity.rank == 0):
            self.output.say(told)
        if self.spec.get("keep_logs"):
            if self.spec.get("ray"):
                self.identity = pod_ray.with_next_attempt(self.spec, self.identity)
                self.output.about = self.identity.about()
            name = f"attempt-{self.identity.attempt}/{self.identity.rank}-{self.identity.node}.log"
            self._keep_logs(pathlib.Path(self.spec["keep_logs"]), name)
        found = pod_preflight.list_devices()
        for warning in pod_preflight.check_devices(self.spec, found):
            self.output.say(f"warning: {warning}")
        newest = next((path.name for path in checkpoints.list_complete(folder, str(self.rules.get("format")))), None)
        seen = {"detail": newest, "folder": str(folder), "versions": versions.read_versions()}
        self.output.mark("events", self._event("pod_ready", **found, **seen))
        return env

    def _use_store(self, folder: pathlib.Path) -> None:
        """Stage datasets and fetch checkpoints, where the job has any in object stores."""
        given = pod_store.read(self.spec)
        pod_store.stage(given, self.run_dir, self.output.say)
        rank, attempt, rules = self.identity.rank, self.identity.attempt, self.spec["checkpoints"]
        self.rules = pod_store.restore(given, rank, attempt, folder, self.run_dir, rules, self.output.say)
        if self.rules.get("store") and self.rules.get("pattern"):
            self.output.hear = pod_store.note_printed(str(self.rules["pattern"]), self.run_dir)

    def _keep_logs(self, folder: pathlib.Path, name: str) -> None:
        """Keep the log beside the checkpoints, and check that this pod may run: once, as the newest attempt."""
        self.output.keep(folder / name)
        attempt_id = (int(self.spec.get("begun", 0)), self.identity.attempt)
        pod = self.identity.uid or self.identity.pod
        try:
            self.writer_guard = pod_fence.guard_start(folder, attempt_id, pod, self.output.say)
        except pod_fence.FencedError as exc:
            raise pod_preflight.PodRefusal(str(exc), EXIT_UNREACHABLE) from exc

    def _discover(self) -> str:
        """Return the first node's address. The first node starts at once; the others find it."""
        run = {"run_id": self.spec["run_id"], "attempt": self.identity.attempt}
        others = int(self.spec["nodes"]) > 1 and self.spec.get("coordinator")
        if not others or self.spec.get("role") == "launcher":
            return self.identity.address
        port = int(self.spec["port"]) + 1
        if self.identity.rank == 0:
            self.shared = pod_shared.begin_proof(self.spec)
            # On the node's own network the previous attempt may still use the port.
            until = time.monotonic() + float(self.spec["grace_s"]) + _REPORT_S
            host = self.spec.get("listen") or ("::" if ":" in self.identity.address else "0.0.0.0")
            listen = functools.partial(pod_discovery.DiscoveryServer, host, port, run, self.identity.node, self.shared)
            try:
                self.discovery = pod_discovery.retry_listening(listen, until, self._pause)
            except OSError as exc:
                raise pod_preflight.PodRefusal(f"port {port} is taken: {exc.strerror}", EXIT_UNREACHABLE) from exc
            if self.shared is not None and self.spec["policy"] != "torchrun":
                # Ranks under torchrun wait for each other; any other program would begin without the others.
                self.shared.wait(time.monotonic() + float(self.spec["wait_s"]), self._pause)
            return self.identity.address
        me = {"rank": self.identity.rank, "node": self.identity.node}
        until = time.monotonic() + float(self.spec["wait_s"])
        address = pod_discovery.find_first_pod(
            self.spec["coordinator"], port, me, run, until, self._pause, self.output.say, self.since
        )
        pod_shared.require_shared(self.spec, (address, port), {**run, **me}, until, self._pause)
        return address

    def _pause(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < end:
            self._tick(end - time.monotonic())
        return not self.stopping

    def _own_variables(self) -> dict[str, str]:
        counter = self.run_dir / f"attempts-{self.identity.attempt}"
        return {"MUSTER_ATTEMPT_COUNTER": str(counter), processes.MARKER: self.marker}

    def _start(self, env: dict[str, str]) -> None:
        places = {"{program}": str(self.program), "{run_dir}": str(self.run_dir)}
        argv = [replace_placeholders(str(item), places) for item in self.spec["argv"]]
        workdir = replace_placeholders(self.spec["workdir"], places)
        if self.spec.get("ssh"):
            rank = [replace_placeholders(str(item), places) for item in self.spec["ssh"].get("argv", ())]
            # Secrets are in a file of their own, which the rank reads.
            public = {key: value for key, value in env.items() if key not in self.secret_names}
            pod_mpi.write_ssh_files(self.spec["ssh"], self.run_dir, rank, workdir, public)
            if self.spec["ssh"].get("done"):
                self.completions = pod_mpi.RankCompletions(
                    str(self.spec["ssh"]["done"]), int(self.spec["ssh"]["ranks"])
                )
                self.output.filter_line = self.completions.filter_line
            if self.spec["ssh"].get("hosts"):
                until = time.monotonic() + float(self.spec["wait_s"])
                pod_mpi.wait_for_hosts(self.spec["ssh"], until, self._pause, self.output.say)
        if self.spec.get("ray"):
            found = pod_ray.wait_for_workers(self.spec["ray"], float(self.spec["wait_s"]))
            self.output.mark("events", self._event("ray_workers", **found))
            self.attendance = pod_ray.Attendance(self.spec["ray"], self.run_dir / "events.jsonl", self.identity.attempt)
        if env.get("MUSTER_METRICS_FILE"):
            # The drivers of a Ray job share one file: each reads the lines after its own start.
            self.tails["metrics"] = Tail(pathlib.Path(env["MUSTER_METRICS_FILE"]), new=bool(self.spec.get("ray")))
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
            program = argv[0] if exc.filename == argv[0] else f"in the folder {exc.filename}"
            raise pod_preflight.PodRefusal(f"cannot run {program}: {exc.strerror}", 127) from exc
        os.set_blocking(self._pipe(), False)
        rules = {"folder": str(self.spec["checkpoint_dir"]), "first": self.identity.rank == 0, **self.rules}
        self.care = checkpoint_care.CheckpointCare(rules, self.run_dir, self.identity.node)
        self.care.start()
        self.output.mark("events", self._event("agent_started", detail=" ".join(argv[:4])))

    def _watch(self) -> int:
        child = t.cast("subprocess.Popen[bytes]", self.child)
        report_at = time.monotonic() + _REPORT_S
        kill_at: float | None = None
        while child.poll() is None:
            self._tick(_TICK_S)
            if time.monotonic() - self.forwarded_at > _TICK_S / 2:
                self._forward_records()
            if time.monotonic() > report_at:
                report_at = time.monotonic() + 2 * _REPORT_S
                self._check_attendance()
            if self.writer_guard is not None and self.writer_guard.newer_attempt and not self.stopping:
                # The checkpoints now belong to the newer attempt.
                kill_at = self._stop_for_newer_attempt()
            if self.stopping and kill_at is None:
                kill_at = time.monotonic() + float(self.spec["grace_s"])
                self._forward_stop()
            if kill_at is not None and time.monotonic() > kill_at:
                if not (self.writer_guard and self.writer_guard.newer_attempt):
                    self.output.say(f"killed: it did not end within {self.spec['grace_s']} s")
                processes.kill_group(child.pid, signal.SIGKILL)
                processes.kill_marked(self.marker)
                child.wait()
        code = child.returncode
        return 128 - code if code < 0 else code

    def _stop_for_newer_attempt(self) -> float:
        newer = t.cast(pod_fence.SingleWriterGuard, self.writer_guard).newer_attempt
        self._ask_stop(f"attempt {newer} of the run has started")
        self.output.say(f"{self.stopping}: stopping this one")
        return time.monotonic()

    def _forward_stop(self) -> None:
        """Tell where the ranks stand, then forward the stop, so that the program can save."""
        within_s = min(_STACKS_S, float(self.spec["grace_s"]) / 4)
        for item in diag_stacks.take_stacks(self.ranks, signals=False, within_s=within_s)["ranks"]:
            self.output.mark("events", self._event("rank_stack", **{**item, "text": item["text"][:_STACK_BYTES]}))
        child = t.cast("subprocess.Popen[bytes]", self.child)
        self.output.say(f"{self.stopping}: the program has {self.spec['grace_s']} s")
        if self.spec["policy"] == "torchrun":
            # torchrun forwards the signal to its ranks, which are in sessions of their own.
            child.terminate()
        else:
            processes.kill_group(child.pid, signal.SIGTERM)

    def _check_attendance(self) -> None:
        """Report the nodes that are missing, and stop when one is for too long. An elastic gang does not wait."""
        if self.discovery is None or self.spec.get("elastic"):
            return
        missing = [rank for rank in range(1, int(self.spec["nodes"])) if rank not in self.discovery.seen]
        if not missing:
            return
        waited = time.monotonic() - self.since
        names = ", ".join(str(rank) for rank in missing[:8]) + ("…" if len(missing) > 8 else "")
        self.output.say(f"node ranks {names} of {self.spec['nodes']} have not connected after {waited:.0f} s")
        if waited > float(self.spec["wait_s"]):
            self.exit_code.add_failure(EXIT_UNREACHABLE)
            self._ask_stop("gave up waiting for the other nodes")

    def _wait_for_late_nodes(self) -> None:
        """Keep answering until every other node has found this one: a command may end before they connect."""
        until = time.monotonic() + float(self.spec["wait_s"])
        while self.discovery is not None and len(self.discovery.seen) < int(self.spec["nodes"]) - 1:
            if self.spec.get("elastic") or time.monotonic() > until or not self._pause(_TICK_S):
                return

    def _clean_up(self) -> None:
        """Kill the launcher's remaining processes and forward the last lines."""
        processes.kill_marked(self.marker)
        if self.care is not None:
            # Asked to stop, the pod has seconds left; after its program's end, as long as the store takes bytes. A
            # worker of MPI is stopped when all ranks have ended: what they had for saving is left.
            left = float(self.spec["grace_s"]) if self.spec.get("ssh") else _REPORT_S / 2
            self.care.close(left if self.stopping else None, self._forward_records)
        problem = self.attendance.finish() if self.attendance is not None else ""
        if problem:
            self.output.say(f"Ray Train did not report its workers: {problem}")
        self._read()
        self.transport.update(last=True)
        self._forward_records()
        self.output.flush()
        if self.child is not None and self.child.stdout is not None:
            self.child.stdout.close()

    def _verify_exit_code(self, code: int) -> int:
        """Return the exit code, 1 when mpirun's 0 hides lost ranks."""
        problem = self.completions.problem() if self.completions is not None and code == 0 else ""
        if not problem:
            return code
        self.output.say(problem)
        # mpirun does not report their nodes.
        self.output.mark("events", {**self._event("node_lost", detail=problem), "node": None})
        return 1

    def _forward_records(self) -> None:
        """Forward the lines that the ranks recorded."""
        self.forwarded_at = time.monotonic()
        self.sampler.write(self.run_dir / "usage.jsonl", self.identity.node)
        self.transport.update()
        if not self.stopping:
            self.watch.update()
        for stream, tail in self.tails.items():
            for line in tail.lines():
                self.output.mark(stream, line)
                started = stream == "events" and line.get("kind") == "worker_started"
                if started and self.writer_guard and self.attendance and isinstance(line.get("attempt"), int):
                    self.writer_guard.begin(line["attempt"])
                if started and isinstance(line.get("pid"), int):
                    self.ranks[line["rank"]] = line["pid"]
                if stream == "events" and line.get("kind") == "worker_exit":
                    self.ranks.pop(line.get("rank", -1), None)
                    self._rank_ended(line.get("exit_code"))

    def _rank_ended(self, code: t.Any) -> None:
        if not isinstance(code, int) or code in (0, STOPPED) or self.stopping:
            return
        if self.exit_code.add_failure(code):
            # A launcher that restarts ranks would restart this one.
            self._ask_stop(f"exit code {code} is fatal")

    def _tick(self, seconds: float) -> None:
        """Wait for output, a signal or the time; reap orphans, which belong to the pod's first process."""
        wait = [self.wake] + ([self._pipe()] if self.child is not None else [])
        ready = select.select(wait, [], [], max(0.0, seconds))[0]
        if len(ready) > (self.wake in ready) and not self._read():
            # The launcher closed its output and is still running.
            time.sleep(min(_TICK_S, max(0.0, seconds)))
        if self.wake not in ready:
            return
        os.read(self.wake, 4096)
        own = self.child.pid if self.child else 0
        for pid in processes.dead_children(os.getpid()):
            if pid != own:
                os.waitpid(pid, os.WNOHANG)

    def _read(self) -> bool:
        """Forward the program's output; return False at its end."""
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
        return {"at": time.time(), "kind": kind, "node": self.identity.node, "attempt": self.identity.attempt, **values}


def main(spec: dict[str, t.Any], program: pathlib.Path) -> int:
    """Run the node; return the container's exit code."""
    try:
        return PodRunner(spec, program.parent).run()
    except pod_preflight.PodRefusal as exc:
        print(f"muster: {exc}", flush=True)
        return exc.code
