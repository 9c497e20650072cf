# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workers of a Ray job: all must be alive before the driver starts, and those that trained are recorded.

Ray Train keeps the worker group of every attempt of a run (``TrainStateActor``, Ray Train V2); a process beside the
driver writes them to the events as ranks that started and ended.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import typing as t

from . import pod_fence, pod_preflight

EXIT_UNREACHABLE = 69
# Run by the job's own interpreter, which has ray. The head takes no work and is not counted.
_ASK = """
import json, sys, time
import ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR", namespace="muster")
wanted, until, found = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), []
while True:
    found = [n["NodeManagerHostname"] for n in ray.nodes()
             if n["Alive"] and "node:__internal_head__" not in n["Resources"]]
    if len(found) >= wanted or time.monotonic() > until:
        break
    time.sleep(0.5)
print(json.dumps({"nodes": sorted(found), "ray": ray.__version__}))
"""

# Run beside the driver: events file, number of the first attempt. Its input is closed when the driver has ended.
_WATCH = """
import json, os, sys, threading, time
import ray
from ray.train.v2._internal.state.state_actor import get_state_actor
ray.init(address="auto", log_to_driver=False, logging_level="ERROR", namespace="muster")
place, base, reported = sys.argv[1], int(sys.argv[2]), set()
def tell(**line):
    key = (line["kind"], line["gang"], line["rank"])
    if key not in reported:
        reported.add(key)
        with open(place, "a") as out:
            out.write(json.dumps(line) + "\\n")
def record():
    actor = get_state_actor()
    if actor is None:
        return
    runs = ray.get(actor.get_train_run_attempts.remote(), timeout=10)
    names = {n["NodeID"]: n["NodeManagerHostname"] for n in ray.nodes()}
    found = sorted((a for run in runs.values() for a in run.values() if a.workers), key=lambda a: a.start_time_ns)
    for number, attempt in enumerate(found):
        for w in attempt.workers:
            common = {"rank": w.world_rank, "local_rank": w.local_rank, "attempt": base + number,
                      "gang": attempt.attempt_id, "node": names.get(w.node_id, w.node_ip)}
            tell(at=attempt.start_time_ns / 1e9, kind="worker_started", world_size=len(attempt.workers), pid=w.pid,
                 **common)
            if attempt.end_time_ns:
                code = 0 if attempt.status.name == "FINISHED" else 1
                tell(at=attempt.end_time_ns / 1e9, kind="worker_exit", exit_code=code, signal=0, **common)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while True:
    last = over.wait(2)
    try:
        record()
    except Exception as exc:
        print(type(exc).__name__, exc, file=sys.stderr)
    if last:
        break
"""
_FINISH_S = 30


class Attendance:
    """Records the workers that Ray Train has used; ``finish`` waits for the last record."""

    def __init__(self, cluster: t.Mapping[str, t.Any], events: pathlib.Path, attempt: int) -> None:
        argv = [str(cluster["python"]), "-c", _WATCH, str(events), str(attempt)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True)

    def finish(self) -> str:
        """Return the problem, empty when the record is complete."""
        try:
            errors = self._process.communicate("", timeout=_FINISH_S)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            errors = self._process.communicate()[1] + f"\nno answer within {_FINISH_S} s"
        if self._process.returncode == 0 and not errors.strip():
            return ""
        return (errors.strip().splitlines() or [f"ended with {self._process.returncode}"])[-1][:300]


def with_next_attempt(spec: t.Mapping[str, t.Any], pod: pod_preflight.PodIdentity) -> pod_preflight.PodIdentity:
    """Return ``pod`` with an attempt number that no earlier driver of this submission had.

    KubeRay does not tell its pods how often a driver or a Ray cluster was restarted: the newest attempt is read from
    the folder that the clusters share.
    """
    begun, newest = pod_fence.read_newest(pathlib.Path(spec["keep_logs"]).parent / pod_fence.NEWEST)
    if begun != int(spec.get("begun", 0)):
        return pod
    return dataclasses.replace(pod, attempt=max(pod.attempt, newest + 1))


def wait_for_workers(cluster: t.Mapping[str, t.Any], wait_s: float) -> dict[str, t.Any]:
    """Return ``{nodes, ray}`` once all workers of the cluster are alive.

    :raises PodRefusal: when they do not join in time, or when ray does not answer.
    """
    wanted = int(cluster["nodes"])
    argv = [str(cluster["python"]), "-c", _ASK, str(wanted), str(wait_s)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=wait_s + 60, check=False)
    except subprocess.TimeoutExpired as exc:
        raise pod_preflight.PodRefusal(f"Ray did not answer within {wait_s + 60:.0f} s", EXIT_UNREACHABLE) from exc
    except OSError as exc:
        raise pod_preflight.PodRefusal(f"cannot run {argv[0]}: {exc.strerror}", 127) from exc
    found = _parse_answer(done.stdout)
    if found is None:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise pod_preflight.PodRefusal(f"Ray did not list its nodes: {last[:300]}", EXIT_UNREACHABLE)
    if len(found["nodes"]) < wanted:
        names = ", ".join(found["nodes"]) or "none"
        raise pod_preflight.PodRefusal(
            f"{len(found['nodes'])} of {wanted} Ray workers joined: {names}", EXIT_UNREACHABLE
        )
    return found


def _parse_answer(text: str) -> dict[str, t.Any] | None:
    try:
        value = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("nodes"), list) else None
