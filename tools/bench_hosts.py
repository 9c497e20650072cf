# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the hosts backend, each with its gate (``make bench``): ratios within one run on one machine.

Everything runs on two loopback nodes of this machine with gloo on the CPU; the report says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import Remote
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import plan as hosts_plan
from tools.bench_memory import memory
from tools.bench_world import INTERVAL, NODES, ROOT, THREADS, Line, World, address, first_step, playbook, read, until


def launch_cost(world: World, rounds: int) -> list[Line]:
    """Compare ``train`` with the same torchrun typed by hand, and with an empty playbook."""
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
            "≤ +1.0 s and ≤ +20 %",
            extra <= 1.0 and share <= 0.2,
        ),
        Line("  of it an empty playbook", f"{nothing:.2f} s", "–", None),
    ]


def _torchrun(world: World, node: str, run_id: str, folder: pathlib.Path) -> list[str]:
    job = parse_job(world.job(run_id))
    host = hosts_plan.Host(node, address(node), world.python, 0.0, "local", {})
    hosts = [dataclasses.replace(host, name=name, address=address(name)) for name in NODES]
    info = {
        "state_dir": str(folder),
        "training": {"executable": world.python},
        "executable": sys.executable,
        "tools": {},
        "user": "",
    }
    slots = hosts_plan.slots(hosts, dict.fromkeys(NODES, info), run_id)
    plan, _ = hosts_plan.launch(job, slots, run_id, 1)
    ours = list(plan.nodes[NODES.index(node)].argv)
    argv = [ours[0], "-m", "torch.distributed.run", *ours[2:]]
    script = argv.index("--no-python")
    # By hand the first node's agent hosts the store, and nobody wraps the script.
    host_flag = "is_host=1" if node == NODES[0] else "is_host=0"
    head = [
        item.replace("is_host=0", host_flag) for item in argv[:script] if not item.startswith(("--log-dir", "--tee"))
    ]
    example = ROOT / "examples" / "char_lm" / "train.py"
    return [*head, str(example), *(str(item) for item in world.job(run_id)["args"])]


def _by_hand(world: World, run_id: str) -> float:
    folder = world.root / run_id
    folder.mkdir()
    metrics = folder / "metrics.jsonl"
    env = {
        **os.environ,
        "MUSTER_METRICS_FILE": str(metrics),
        "MUSTER_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
        **THREADS,
    }
    began = time.time()
    agents = [
        subprocess.Popen(
            _torchrun(world, node, run_id, folder), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for node in NODES
    ]
    try:
        return t.cast(float, until(functools.partial(_first_in, metrics), "torchrun's first step")) - began
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait()


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


def kills(world: World, target: str, count: int) -> list[float | None]:
    """Kill ``target`` again and again in one run that the product follows; return seconds to the next new step."""
    run_id = f"kill-{target}"
    request = world.request(world.job(run_id), run_id)
    following = threading.Thread(target=lambda: training_job.run(request), daemon=True)
    following.start()
    remotes = {remote.name: remote for remote in world.remotes(NODES)}
    times: list[float | None] = []
    lost: list[int] = []
    for number in range(count):
        start = max([0, *(int(line["step"]) for line in world.metrics(run_id) if "step" in line)])
        until(functools.partial(_ready, world, run_id, start), "a checkpoint and some steps")
        node = NODES[number % len(NODES)]
        before = max(int(line["step"]) for line in world.metrics(run_id) if "step" in line)
        at = float(remotes[node].call("kill", run_id=run_id, target=target, rank=None)["at"])
        resumed = _next_life(world, run_id, at)
        times.append(resumed[0] if resumed else None)
        if resumed:
            lost.append(before - resumed[1])
    training_job.run(world.request({}, run_id, state="cancelled"))
    following.join(timeout=30)
    if lost and max(lost) > INTERVAL:
        raise SystemExit(f"bench: {max(lost)} steps were lost, the checkpoint interval is {INTERVAL}")
    return times


def _first_in(place: pathlib.Path) -> float | None:
    return first_step(read(place))


def _ready(world: World, run_id: str, least: int) -> bool:
    """Return whether the run is past a checkpoint, so that a kill loses some steps, and past the last kill."""
    lines = world.metrics(run_id)
    steps = [int(line["step"]) for line in lines if "step" in line]
    saved = [int(line["checkpoint_step"]) for line in lines if "checkpoint_step" in line]
    return bool(steps and saved and steps[-1] >= saved[-1] + 3 and steps[-1] > least + INTERVAL)


def _next_life(world: World, run_id: str, at: float) -> tuple[float, int] | None:
    def look() -> tuple[float, int] | None:
        lines = [line for line in world.metrics(run_id) if float(line["at"]) > at]
        begin = next((i for i, line in enumerate(lines) if "resumed_from_step" in line), None)
        if begin is None:
            return None
        found = first_step(lines[begin:])
        return (found - at, int(lines[begin]["resumed_from_step"])) if found else None

    try:
        return t.cast("tuple[float, int]", until(look, "the resume", 90.0))
    except SystemExit:
        return None


def bare_start(world: World, rounds: int) -> float:
    """Measure alone what a restart cannot avoid: import torch, process group, checkpoint load, first step."""
    folder = world.root / "bare"
    seed = world.root / "checkpoints" / "kill-worker"
    times = []
    for number in range(rounds):
        copy = folder / str(number)
        shutil.copytree(seed, copy / "checkpoints")
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + number), "WORLD_SIZE": "2"}
        env.update({"MUSTER_CHECKPOINT_DIR": str(copy / "checkpoints"), "GLOO_SOCKET_IFNAME": "lo", **THREADS})
        env.update({"MUSTER_METRICS_FILE": str(copy / "metrics.jsonl"), "CUDA_VISIBLE_DEVICES": "", "LOCAL_RANK": "0"})
        argv = [world.python, str(ROOT / "examples/char_lm/train.py"), *(str(item) for item in world.job("x")["args"])]
        began = time.time()
        ranks = [
            subprocess.Popen(argv, env={**env, "RANK": str(rank)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for rank in range(2)
        ]
        times.append(
            t.cast(float, until(functools.partial(_first_in, copy / "metrics.jsonl"), "the bare ranks")) - began
        )
        for rank in ranks:
            rank.kill()
            rank.wait()
    return statistics.median(times)


def restarts(world: World, count: int) -> list[Line]:
    """Kill a rank, an agent and a whole host, each ``count`` times."""
    lines = []
    worker = kills(world, "worker", count)
    alone = bare_start(world, 5)
    good = [value for value in worker if value is not None]
    middle = statistics.median(good) if good else float("inf")
    shown = f"{len(good)} of {count}, median {middle:.2f} s against {alone:.2f} s alone: {middle / alone:.2f} ×"
    ok = len(good) == count and middle <= 1.25 * alone
    lines.append(Line("rank killed → first resumed step", shown, f"{count} of {count}, ≤ 1.25 ×", ok))
    for target in ("agent", "host"):
        times = kills(world, target, count)
        good = [value for value in times if value is not None]
        shown = (
            f"{len(good)} of {count}, p50 {statistics.median(good):.2f} s, max {max(good):.2f} s"
            if good
            else f"0 of {count}"
        )
        lines.append(Line(f"{target} killed → first resumed step", shown, f"{count} of {count}", len(good) == count))
    return lines


def requests_and_idempotence(world: World) -> list[Line]:
    """Count what one start asks of a node, and run the same job again while it runs."""
    job = world.job("again")
    first = world.request(job, "again", wait=False)
    counted: list[Remote] = []

    def connect(names: t.Sequence[str]) -> list[Remote]:
        counted[:] = world.remotes(names)
        return counted

    # The first start installs the agent and sends the code; what is counted is a start on hosts that are ready.
    training_job.run(world.request(world.job("ready"), "ready", wait=False))
    training_job.run(world.request({}, "ready", state="cancelled"))
    training_job.run(dataclasses.replace(first, connect=connect))
    count = max(remote.requests for remote in counted)
    before = _supervisors(world, "again")
    second = training_job.run(first)
    same = before == _supervisors(world, "again")
    training_job.run(world.request({}, "again", state="cancelled"))
    return [
        Line("requests to a host for train on ready hosts (modules executed: 0)", str(count), "≤ 3", count <= 3),
        Line(
            "second train of a running job",
            f"changed={second['changed']}, same processes: {same}",
            "nothing",
            same and not second["changed"],
        ),
    ]


def _supervisors(world: World, run_id: str) -> list[str]:
    return [
        json.loads((world.run_dir(node, run_id) / "units" / unit / "state.json").read_text())["supervisor"]
        for node, unit in (("node-1", "store"), ("node-1", "agent"), ("node-2", "agent"))
    ]


def main(argv: list[str]) -> int:
    """Print every figure with PASS or FAIL; return 1 when a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", choices=["launch", "kills", "requests", "memory"])
    options = parser.parse_args(argv)
    python = os.environ.get("MUSTER_TORCH_PYTHON")
    if not python:
        raise SystemExit("bench: MUSTER_TORCH_PYTHON must name an interpreter with torch (make bench sets it)")
    parts: dict[str, t.Callable[[World], list[Line]]] = {
        "requests": requests_and_idempotence,
        "launch": lambda world: launch_cost(world, options.rounds),
        "kills": lambda world: restarts(world, options.kills),
        "memory": memory,
    }
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as folder:
        world = World(pathlib.Path(folder), python)
        StateHome({"path": str(world.root / "state")}, "bench")
        for name, part in parts.items():
            if options.only in (None, name):
                for line in part(world):
                    verdict = "" if line.ok is None else ("PASS" if line.ok else "FAIL")
                    failed += line.ok is False
                    print(f"{line.what}: {line.value} (gate {line.gate}) {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
