# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that loses its place to a more urgent one: what is said, what its record says, what does not count."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, kube_lab
from ansible_collections.muster.training.tests.support.node_lab import read_lines

__all__ = ["kube_lab"]

# What the first gang may take and what it needs; the urgent one holds the place for longer than is left of that.
LIMIT_S, NEEDS_S, URGENT_S = 90, 40, 60


def gang(name: str, priority: str, seconds: int, **more: t.Any) -> Dict:
    """Return a job that takes more than half of the queue's place."""
    resources = {"cpu": 0.3, "memory": "64Mi"}
    return command("sleep", str(seconds), name=name, placement={"priority": priority}, resources=resources, **more)


def test_a_preempted_gang_waits_and_its_record_says_so(kube_lab: KubeLab, tmp_path: pathlib.Path) -> None:
    with kube_lab.namespace(cpu="1", memory="8Gi", preemption=True) as team, kube_lab.priorities(low=10, high=100):
        controller = Controller(kube_lab, team, tmp_path)
        first = controller.start("train", gang("first", "low", NEEDS_S, timeout_s=LIMIT_S), muster_run_id="first")
        try:
            assert until(lambda: "ranks 2/2" in first.output or first.ended, 90, 0.2) and not first.ended, first.output
            urgent = controller.start("train", gang("urgent", "high", URGENT_S), muster_run_id="urgent")
            try:
                assert until(lambda: "was preempted" in first.output or first.ended, 60, 0.2), first.output
                assert until(lambda: controller.run("first")[0]["state"] == "queued", 20, 0.2), first.output
                assert urgent.wait(240)[0] == 0, urgent.output
            finally:
                urgent.stop()
            code, output = first.wait(240)
        finally:
            first.stop()
        assert code == 0 and "Traceback" not in output, output
        record, folder = controller.run("first")
        assert (record["state"], record["outcome"]) == ("ended", "succeeded"), record["detail"]
        assert record["world_size"] == {"asked": 2, "seen": 2}
        # Kueue takes a place as often as it needs it; only the last attempt was let finish.
        *before, last = record["attempts"]
        assert before and {item["cause"] for item in before} == {"preempted"}, record["attempts"]
        assert last["cause"] != "preempted" and last["ranks"] == 2
        events = read_lines(folder / "events.jsonl")
        assert any("preempt" in json.dumps(line).lower() for line in events), events
        ran = URGENT_S + NEEDS_S
        assert record["duration_s"] >= ran > LIMIT_S, "the time in the queue lies within the run's"
