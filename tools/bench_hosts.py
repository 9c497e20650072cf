# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the hosts backend, each with its gate (``make bench``): ratios within one run on one machine.

Everything runs on two loopback nodes of this machine with gloo on the CPU; the report says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from tools.bench_memory import memory
from tools.bench_torchrun import launch_cost, rank_restarts, restarts
from tools.bench_world import Line, World, judge_when_quiet
from tools.quiet import wait_for_quiet

# The parts whose figures are seconds: judged on a quiet machine only.
WALL_CLOCK = ("launch", "ranks")


def requests_and_idempotence(world: World) -> list[Line]:
    """Count what one start asks of a node, and run the same job again while it runs."""
    job = world.job("again")
    first = world.request(job, "again", wait=False)
    counted: list[NodeClient] = []

    def connect(names: t.Sequence[str]) -> list[NodeClient]:
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
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rank-kills", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", choices=["launch", "ranks", "kills", "requests", "memory"])
    options = parser.parse_args(argv)
    python = os.environ.get("MUSTER_TORCH_PYTHON")
    if not python:
        raise SystemExit("bench: MUSTER_TORCH_PYTHON must name an interpreter with torch (make bench sets it)")
    parts: dict[str, t.Callable[[World], t.Iterable[Line]]] = {
        "requests": requests_and_idempotence,
        "launch": lambda world: launch_cost(world, options.rounds),
        "ranks": lambda world: rank_restarts(world, options.rank_kills),
        "kills": lambda world: restarts(world, options.kills),
        "memory": memory,
    }
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as folder:
        world = World(pathlib.Path(folder), python)
        StateHome({"path": str(world.root / "state")}, "bench")
        for name, part in parts.items():
            if options.only in (None, name):
                is_quiet = name not in WALL_CLOCK or wait_for_quiet()
                for line in judge_when_quiet(part(world), is_quiet):
                    verdict = "" if line.ok is None else ("PASS" if line.ok else "FAIL")
                    failed += line.ok is False
                    print(f"{line.what}: {line.value} (gate {line.gate}) {verdict}", flush=True)
                print(f"  load average: {', '.join(f'{value:.1f}' for value in os.getloadavg())}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
