# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of torchrun under the collection against torchrun typed by hand: the first start, and ranks that are killed.

Loopback nodes of this machine: two with gloo on the CPU for ``tools.bench_hosts``, one for ``tools.bench_gpu``.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._model.node_report import InterpreterReport, NodeReport
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import plan as hosts_plan
from tools.bench_world import (
    INTERVAL,
    ROOT,
    THREADS,
    Line,
    World,
    address,
    first_step,
    playbook,
    read,
    until,
)

Lines = list[dict[str, t.Any]]


def launch_cost(world: World, rounds: int) -> list[Line]:
    """Compare ``train`` with the same torchrun typed by hand, and with an empty playbook; one after the other."""
    ours, hand, empty = [], [], []
    for number in range(rounds):
        hand.append(_by_hand(world, f"hand-{number}"))
        ours.append(_by_playbook(world, f"ours-{number}"))
        empty.append(_empty_playbook(world))
    mine, theirs, nothing = (statistics.median(values) for values in (ours, hand, empty))
    extra, share = mine - theirs, (mine - theirs) / theirs
    shown = f"{mine:.2f} s against {theirs:.2f} s: {extra:+.2f} s, {100 * share:+.0f} %"
    return [
        Line(
            "train start → first step, against torchrun by hand",
            shown,
            "≤ +1.2 s and ≤ +18 %",
            extra <= 1.2 and share <= 0.18,
        ),
        Line("  of it an empty playbook", f"{nothing:.2f} s", "–", None),
    ]


def _torchrun(world: World, node: str, run_id: str, folder: pathlib.Path) -> list[str]:
    job = parse_job(world.job(run_id))
    host = hosts_plan.TrainingHost(node, address(node), world.python, 0.0, "local", {}, Node(node))
    hosts = [dataclasses.replace(host, name=name, address=address(name)) for name in world.nodes]
    report = NodeReport(training=InterpreterReport(world.python), state_dir=str(folder), executable=sys.executable)
    slots = hosts_plan.build_slots(hosts, dict.fromkeys(world.nodes, report), run_id, {})
    plan, _ = hosts_plan.build_launch(job, slots, run_id, 1)
    ours = list(plan.nodes[world.nodes.index(node)].argv)
    script = ours.index("--no-python")
    # By hand the first node's agent hosts the store, and the script is not wrapped.
    host_flag = "is_host=1" if node == world.nodes[0] else "is_host=0"
    head = [item.replace("is_host=0", host_flag) for item in ours[:script] if not item.startswith("--log-dir")]
    example = ROOT / "examples" / "char_lm" / "train.py"
    return [*head, str(example), *(str(item) for item in world.job(run_id)["args"])]


class HandGang:
    """torchrun typed by hand on all nodes."""

    def __init__(self, world: World, run_id: str) -> None:
        folder = world.root / run_id
        folder.mkdir()
        self._metrics = folder / "metrics.jsonl"
        env = {
            **os.environ,
            "MUSTER_METRICS_FILE": str(self._metrics),
            "MUSTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            **({} if world.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
            **THREADS,
        }
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._agents = [
            subprocess.Popen(_torchrun(world, node, run_id, folder), env=env, cwd=folder, **quiet)  # type: ignore[call-overload]
            for node in world.nodes
        ]

    def __enter__(self) -> HandGang:
        return self

    def __exit__(self, *_unused: object) -> None:
        for agent in self._agents:
            agent.terminate()
        for agent in self._agents:
            agent.wait()

    def metrics(self) -> Lines:
        """Return all metrics so far."""
        return read(self._metrics)

    def kill_rank(self, number: int) -> float:
        """Kill the rank of one of the nodes; return when."""
        agent = self._agents[number % len(self._agents)].pid
        ranks = pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="utf-8").split()
        at = time.time()
        for rank in ranks:
            os.kill(int(rank), signal.SIGKILL)
        return at


def _by_hand(world: World, run_id: str) -> float:
    began = time.time()
    with HandGang(world, run_id) as gang:
        return t.cast(float, until(lambda: first_step(gang.metrics()), "torchrun's first step")) - began


def _by_playbook(world: World, run_id: str) -> float:
    began = time.time()
    play = playbook(world, "muster.training.train", run_id)
    try:
        return t.cast(float, until(lambda: first_step(world.metrics(run_id)), "our first step")) - began
    finally:
        _stop(world, run_id, play)


def _empty_playbook(world: World) -> float:
    place = world.root / "empty.yml"
    place.write_text("- hosts: muster_nodes\n  gather_facts: false\n  tasks: []\n")
    began = time.time()
    playbook(world, str(place), "empty").wait()
    return time.time() - began


def _stop(world: World, run_id: str, play: subprocess.Popen[bytes]) -> None:
    options = world.request({}, run_id, state="cancelled")
    training_job.run(options)
    play.wait()


def kills(world: World, target: str, count: int, name: str = "", **changes: t.Any) -> list[float | None]:
    """Kill ``target`` again and again in one run that the product follows; return seconds to the next new step.

    ``changes`` replace keys of the job, which is another run's of its own ``name``.
    """
    run_id = f"kill-{name or target}"
    request = world.request(world.job(run_id, **changes), run_id)
    following = threading.Thread(target=lambda: training_job.run(request), daemon=True)
    following.start()
    remotes = {remote.name: remote for remote in world.remotes(world.nodes)}
    times: list[float | None] = []
    lost: list[int] = []
    for number in range(count):
        start = max([0, *(int(line["step"]) for line in world.metrics(run_id) if "step" in line)])
        until(
            functools.partial(_is_ready, functools.partial(world.metrics, run_id), start), "a checkpoint and some steps"
        )
        node = world.nodes[number % int(changes.get("nodes", len(world.nodes)))]
        before = max(int(line["step"]) for line in world.metrics(run_id) if "step" in line)
        at = float(remotes[node].call("kill", run_id=run_id, target=target, rank=None)["at"])
        resumed = _next_life(lambda: world.metrics(run_id), at)
        times.append(resumed[0] if resumed else None)
        if resumed:
            lost.append(before - resumed[1])
    training_job.run(world.request({}, run_id, state="cancelled"))
    following.join(timeout=30)
    if lost and max(lost) > INTERVAL:
        raise SystemExit(f"bench: {max(lost)} steps were lost, the checkpoint interval is {INTERVAL}")
    return times


def _is_ready(read_metrics: t.Callable[[], Lines], least: int) -> bool:
    """Return whether the run is past a checkpoint, so that a kill loses some steps, and past the last kill."""
    lines = read_metrics()
    steps = [int(line["step"]) for line in lines if "step" in line]
    saved = [int(line["checkpoint_step"]) for line in lines if "checkpoint_step" in line]
    return bool(steps and saved and steps[-1] >= saved[-1] + 3 and steps[-1] > least + INTERVAL)


def _next_life(read_metrics: t.Callable[[], Lines], at: float) -> tuple[float, int] | None:
    """Return how long after ``at`` the first resumed step was made, and from which checkpoint; None when it was not."""

    def look() -> tuple[float, int] | None:
        lines = [line for line in read_metrics() if float(line["at"]) > at]
        begin = next((i for i, line in enumerate(lines) if "resumed_from_step" in line), None)
        if begin is None:
            return None
        found = first_step(lines[begin:])
        return (found - at, int(lines[begin]["resumed_from_step"])) if found else None

    try:
        return t.cast("tuple[float, int]", until(look, "the resume", 90.0))
    except SystemExit:
        return None


def kills_by_hand(world: World, count: int) -> list[float | None]:
    """Kill ranks of torchrun typed by hand, as :func:`kills` does; return seconds to the next new step."""
    times: list[float | None] = []
    with HandGang(world, "hand-kills") as gang:
        for number in range(count):
            start = max([0, *(int(line["step"]) for line in gang.metrics() if "step" in line)])
            until(functools.partial(_is_ready, gang.metrics, start), "a checkpoint and some steps")
            resumed = _next_life(gang.metrics, gang.kill_rank(number))
            times.append(resumed[0] if resumed else None)
    return times


def rank_restarts(world: World, count: int) -> t.Iterator[Line]:
    """Kill ranks of a job, and of torchrun typed by hand."""
    what = "rank killed → first resumed step"
    cold, cold_text = _summary(kills(world, "worker", count), count)
    hand, hand_text = _summary(kills_by_hand(world, count), count)
    is_level = len(cold) == len(hand) == count and statistics.median(cold) <= statistics.median(hand) + 0.8
    gate = f"{count} of {count}, p50 ≤ +0.8 s"
    yield Line(f"{what}", f"{cold_text}, against {hand_text} by hand", gate, is_level)


def restarts(world: World, count: int) -> list[Line]:
    """Kill an agent and a whole host, each ``count`` times."""
    lines = []
    for target in ("agent", "host"):
        seconds, text = _summary(kills(world, target, count), count)
        lines.append(Line(f"{target} killed → first resumed step", text, f"{count} of {count}", len(seconds) == count))
    return lines


def _summary(times: t.Sequence[float | None], count: int) -> tuple[list[float], str]:
    seconds = [value for value in times if value is not None]
    if not seconds:
        return [], f"0 of {count}"
    return seconds, f"{len(seconds)} of {count}, p50 {statistics.median(seconds):.2f} s, max {max(seconds):.2f} s"
