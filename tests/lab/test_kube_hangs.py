# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gangs of two pods, one of whose ranks hangs while the other waits for it: it is named by rank, node and line.

Real: kubelet, containerd, torch over gloo; the program is that of the hangs on hosts and knows nothing of who watches it.
It notes itself when it stops. Each hang is read where a user reads it: ``train``, its events, ``status``, the record.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, Play
from ansible_collections.muster.training.tests.support.hung_gangs import FOLDER, PROGRAM, read_lines
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, Team, kube_lab, not_run, team
from ansible_collections.muster.training.tests.support.node_lab import read_lines as read_json_lines

__all__ = ["kube_lab", "team"]
pytestmark = pytest.mark.torch

LINES: t.Final = read_lines()
NAMED_S, START_S = 15.0, 150.0
# What is said of a rank of each kind, empty where that depends on the kernel.
STANDS: t.Final = {
    "lock": "waits for a lock",
    "fifo": "reads from a pipe",
    "queue": "waits for a queue",
    "stop": "is stopped by a signal",
    "loader_worker": "waits for its data loader",
    "sleep": "sleeps",
    "socket": "",
    "subprocess": "waits for a process that it started",
    "join": "waits for a thread or a lock",
    "gil": "",
    "spin": "computes and goes round in circles",
    "other": "waits in broadcast",
    "early": "waits in barrier",
    "recv": "waits in recv",
}
# Of two ranks that wait in different operations neither is the odd one: these have two ranks in each pod.
DIFFER: t.Final = ("other", "early", "recv")
# One that goes round in circles is told from one that evaluates by seven looks, of one every five seconds.
LIMITS: t.Final = {"spin": 50.0}
KINDS: t.Final = tuple(STANDS) if os.environ.get("MUSTER_TEST_ALL") == "1" else ("lock", "fifo", "queue")
SEED: t.Final = int(os.environ.get("MUSTER_HANG_SEED", "12"))


class World:
    """A controller, and a folder that the pods and this machine see, in which the program notes what it does."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.lab = controller, controller.lab
        self.name = f"hangs-{controller.team.namespace}"
        self.folder = self.lab.cluster.folder / "shared" / self.name
        self.folder.mkdir(mode=0o777)

    def job(self, run_id: str, kind: str, **env: str) -> Dict:
        """Return a job of two pods."""
        os.mkfifo(self.folder / f"{run_id}.fifo")
        inside = f"{plan.SHARED}/{self.name}/{run_id}"
        told = {"HANG_KIND": kind, "HANG_TRUTH": f"{inside}.truth", "HANG_FIFO": f"{inside}.fifo", **env}
        torch = self.lab.torch
        return {
            "name": "hangs",
            "nodes": 2,
            "code": {"ref": str(FOLDER)},
            "script": PROGRAM.name,
            "env": {"PYTHONPATH": torch, "OMP_NUM_THREADS": "1", **told},
            "mounts": [
                {"name": "torch", "path": torch, "host_path": torch, "read_only": True},
                {"name": "shared", "path": plan.SHARED, "host_path": plan.SHARED},
            ],
            "metrics": {"step_pattern": r"iter (?P<step>[0-9]+) loss (?P<loss>\S+)"},
            "checkpoints": {"grace_s": 1},
            "processes_per_node": ranks_per_pod(kind),
            "resources": {"cpu": 0.5, "memory": "2Gi"},
        }

    def stopped_at(self, run_id: str) -> float | None:
        """Return when a rank stopped, as it noted itself, None before it has."""
        place = self.folder / f"{run_id}.truth"
        text = place.read_text() if place.exists() else ""
        return float(text.split()[2]) if text.endswith("\n") else None

    def node(self, run_id: str, number: int) -> str:
        """Return the node on which the cluster has a pod of the gang."""
        found = self.lab.pods(self.controller.team.namespace, f"muster.training/run-id%3D{run_id}")
        (pod,) = [item for item in found if f"-node-0-{number}-" in item["metadata"]["name"]]
        return str(pod["spec"]["nodeName"])

    def hangs(self, run_id: str) -> list[Dict]:
        """Return the hangs that are among the events of a run."""
        (place,) = (self.controller.folder / "state").glob(f"*/runs/{run_id}/events.jsonl")
        return [line for line in read_json_lines(place) if line["kind"] == "hang"]


@pytest.fixture
def world(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[World]:
    if not kube_lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    made = World(Controller(kube_lab, team, tmp_path))
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


def hang(world: World, kind: str, bad: int, step: int) -> float:
    """Have a rank hang, and return after how many seconds ``train`` named it; all that is said of it is compared."""
    run_id = f"{kind.replace('_', '-')}-{bad}"
    job = world.job(run_id, kind, HANG_RANK=str(bad), HANG_STEP=str(step))
    play = world.controller.start("train", job, muster_run_id=run_id)
    try:
        took, said = wait_until_named(world, play, run_id, LIMITS.get(kind, NAMED_S))
        node = world.node(run_id, bad // ranks_per_pod(kind))
        (event,) = world.hangs(run_id)
        named = [(item["rank"], item["node"], item["place"]["line"]) for item in event["ranks"]]
        assert named in [[(bad, node, line)] for line in list_lines(kind)], event
        code, status = world.controller.play("status", muster_run_id=run_id)
        assert code == 0 and "hangs for" in status, status
    finally:
        code, output = world.controller.play("cancel", muster_run_id=run_id)
        play.wait(60)
    assert code == 0, output
    record, _folder = world.controller.run(run_id)
    (kept,) = record["hangs"]
    for text in (said, status, kept["text"]):
        assert is_true(text, kind, bad, node), text
    return took


def list_lines(kind: str) -> tuple[int, ...]:
    """Return the lines at which a rank of that kind stands: an endless loop is at its head or in its body."""
    return (LINES[kind] - 1, LINES[kind]) if kind == "spin" else (LINES[kind],)


def ranks_per_pod(kind: str) -> int:
    return 2 if kind in DIFFER else 1


def is_true(text: str, kind: str, bad: int, node: str) -> bool:
    """Return whether a text names the rank, its node, what it does and at which line, and that the others wait."""
    culprit = text.partition(f"rank {bad} on {node} {STANDS[kind]}")[2].partition(";")[0]
    others = re.search(r"; ranks? [0-9, -]+ waits? in backward at ddp_program\.py:", text)
    # One that is stopped by a signal is named at once, before the others are known to wait.
    is_there = any(f"at ddp_program.py:{line} (" in culprit for line in list_lines(kind))
    return is_there and (others is not None or kind == "stop")


def wait_until_named(world: World, play: Play, run_id: str, within_s: float) -> tuple[float, str]:
    """Return how many seconds after a rank had stopped ``train`` said so, and the line in which it did."""
    assert until(lambda: world.stopped_at(run_id) or play.ended, START_S) and not play.ended, play.output[-4000:]
    find = re.compile(r"warning: the run hangs for .*").search
    assert until(lambda: find(play.output) or play.ended, within_s + 30), f"not named: {play.output[-4000:]}"
    took, match = time.time() - (world.stopped_at(run_id) or 0.0), find(play.output)
    assert match, play.output[-4000:]
    assert took <= within_s, f"named {took:.1f} s after it stopped: {match[0]}"
    return took, match[0]


def test_a_rank_that_hangs_is_named(world: World) -> None:
    """Each kind at a random step of the one or the other rank; what is wrong is said of all, not of the first alone."""
    moments, took, problems = random.Random(SEED), dict[str, float](), list[str]()
    for number, kind in enumerate(KINDS, 1):
        bad, step = number % (2 * ranks_per_pod(kind)), moments.randint(3, 60)
        try:
            took[kind] = hang(world, kind, bad, step)
        except AssertionError as error:
            problems.append(f"{kind}, rank {bad}, step {step}: {error}")
        print(f"{kind}, rank {bad}, step {step}: {took.get(kind, problems[-1:])}", flush=True)
    each = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in took.items())
    NOTES.append(f"hangs in pods: {len(took)} of {len(KINDS)} named, each after so many seconds: {each or 'none'}")
    assert not problems, "\n".join(problems)


def test_a_save_for_which_the_other_rank_waits_is_none(world: World) -> None:
    """Rank 0 writes for longer than it takes to name a hang, and the run goes on to its end."""
    job = world.job("save", "save", HANG_STEP="10", HANG_S="20", HANG_STEPS="60")
    code, output = world.controller.play("train", job, muster_run_id="save")
    assert code == 0 and "hangs for" not in output, output
    assert world.stopped_at("save") and world.hangs("save") == []
    record, _folder = world.controller.run("save")
    assert record["outcome"] == "succeeded" and not record.get("hangs"), record


def test_a_gang_that_hangs_is_started_again_and_resumes(world: World) -> None:
    """The pod of the rank that is waited for is deleted after the time that the job gives it; new pods train to the end."""
    saved = {"HANG_ONCE": "1", "HANG_SAVED": "1", "HANG_RANK": "1", "HANG_STEP": "12", "HANG_STEPS": "30"}
    job = world.job("again", "lock", **saved)
    patterns = {"checkpoint_pattern": r"saved step (?P<step>\d+)", "resume_pattern": r"resumed from step (?P<step>\d+)"}
    job["metrics"] |= patterns
    job["checkpoints"] |= {"path": f"{plan.SHARED}/{world.name}"}
    job["restart"] = {"on_hang": "restart", "hang_s": 10}
    code, output = world.controller.play("train", job, muster_run_id="again")
    assert code == 0, output
    record, _folder = world.controller.run("again")
    attempts = [(item["cause"], item["resumed_from_step"]) for item in record["attempts"]]
    assert attempts == [("hang", None), (None, 10)] and record["outcome"] == "succeeded", record["attempts"]
    (hung,) = record["hangs"]
    assert f"rank 1 on {record['attempts'][0]['node']} waits for a lock" in hung["text"], hung
    assert "so that the gang starts again" in output, output
