# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks that end differently: one with success while another fails, as with uneven data or a wrong branch."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, until

PROGRAM = """
import os, sys, time
rank = int(os.environ["RANK"])
time.sleep(2 + rank)
sys.exit(0 if rank == 0 else 3)
"""
# Rank 0 has fewer batches: the others lose it in a collective.
BATCHES = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(5 if os.environ["RANK"] == "0" else 50):
    dist.all_reduce(torch.ones(1))
os._exit(0)
"""


def uneven_job(world: World, python: str, program: str = PROGRAM, **values: t.Any) -> dict[str, t.Any]:
    code = world.root / "code"
    code.mkdir(exist_ok=True)
    (code / "uneven.py").write_text(program)
    source = {"from": "path", "ref": str(code)}
    return {"name": "e2e", "nodes": 2, "python": python, "code": source, "script": "uneven.py", **values}


def test_a_rank_that_fails_after_others_succeeded_is_the_cause(world: World, torch_python: str) -> None:
    """With the default budgets: torchrun's exit barrier waits five minutes, and its store is gone for a restart."""
    result = world.play(job=uneven_job(world, torch_python), limit_s=150)
    print(result.seconds, result.output[-3000:])
    assert result.code != 0 and "exited with code 3" in result.errors[0], result.output
    record = world.record()
    assert (record["outcome"], record["exit_code"]) == ("failed", 3)
    exits = [event["at"] for event in world.events() if event["kind"] == "worker_exit"]
    stops = [event["at"] for event in world.events() if event["kind"] == "agent_exit"]
    # Nothing is waited for once it is known; on a busy machine that takes a while, too.
    assert min(stops) - max(exits) < 9


@pytest.mark.long
def test_a_gang_that_nobody_follows_loses_no_node_by_it(world: World, torch_python: str) -> None:
    """The launcher whose rank failed waits for the other one, which does not come back; then the run is over."""
    job = uneven_job(world, torch_python, restart={"wait_s": 5})
    assert world.play(job=job, training_job_wait=False).code == 0
    place = world.node_folder("node-2") / "units" / "agent" / "exit.json"
    until(place.exists, "the end of the second node", 120)
    ending = json.loads(place.read_text())
    assert (ending["cause"], ending["exit_code"], ending["lost"]) == ("rendezvous_timeout", 3, 0)
    result = world.play(job=job, limit_s=150)
    assert "a rank on node-2 exited with code 3 and others succeeded" in result.errors[0], result.output
    assert "node_lost" not in (world.run_folder() / "events.jsonl").read_text()
    assert (world.record()["outcome"], world.record()["cause"]) == ("failed", "crash")


def test_train_and_diagnose_name_the_rank_that_left(world: World, torch_python: str) -> None:
    result = world.play(job=uneven_job(world, torch_python, BATCHES), limit_s=150)
    left = "rank 0 on node-1 ended with exit code 0"
    assert left in result.errors[0] and "the others have more batches left" in result.errors[0], result.output
    found = world.play("diagnose", muster_run_id=world.run_id)
    lines = [line.partition("  ")[2] for line in found.output.splitlines() if "  rank_" in line]
    # That the other one failed afterwards follows from it, and is no finding by itself.
    assert len(lines) == 1 and lines[0].startswith(f"rank_left on node-1: {left}"), found.output
    assert "the others have more batches left" in lines[0], found.output
