# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that only a real systemd and real machines have: killed supervisors, memory limits. No torch is needed."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.lab import programs, systemd
from ansible_collections.muster.training.tests.lab.nodes import Lab
from ansible_collections.muster.training.tests.lab.plays import Controller

LIMIT_MIB = 96


@pytest.mark.parametrize("node", ["lab-1", "lab-2"])
def test_systemd_starts_a_killed_supervisor_again(lab: Lab, controller: Controller, node: str) -> None:
    """mpirun's side (lab-1) and the side of the run's own sshd (lab-2): old ranks are gone, the run goes on."""
    play = controller.start("train", controller.trainer_job(500, processes_per_node=2))
    controller.wait_step(25)
    unit = systemd.unit(controller, node)
    before = systemd.members(lab, node, unit)
    assert [command for command in before.values() if "rank.py" in command], before
    lab.ask(node, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit)
    until(lambda: systemd.show(lab, node, unit)["NRestarts"] == "1", "systemd to start the unit again")
    ended = play.wait()
    assert ended.code == 0, ended.output
    steps = controller.steps()
    assert steps[-1] == 500
    assert len(steps) - len(set(steps)) <= 10, "more than the checkpoint interval was done twice"
    record = controller.record()
    assert record["world_size"] == {"asked": 4, "seen": 4}
    assert [attempt["ranks"] for attempt in record["attempts"]] == [4, 4]
    assert record["attempts"][1]["resumed_from_step"] >= 20
    for other in lab.nodes:
        assert systemd.traces(lab, other.name, controller.run_id) == []


def test_cancel_holds_against_systemd(lab: Lab, controller: Controller) -> None:
    """A supervisor that is killed while the run is being cancelled is not started again."""
    play = controller.start("train", controller.rank_job(checkpoints={"grace_s": 1}))
    controller.wait_began()
    # It cannot answer SIGTERM, so cancel has to kill it; that is a failure in systemd's eyes.
    lab.ask("lab-2", "systemctl", "kill", "--signal=STOP", "--kill-whom=main", systemd.unit(controller, "lab-2"))
    cancelled = controller.play("cancel")
    assert cancelled.code == 0, cancelled.output
    play.wait()
    assert controller.record()["outcome"] == "cancelled"
    for node in lab.nodes:
        assert systemd.traces(lab, node.name, controller.run_id) == []
    assert len(controller.began()) == 2, "a rank was started after the cancel"


def test_rank_beyond_the_memory_limit_is_named(lab: Lab, controller: Controller) -> None:
    job = controller.rank_job(
        command=["python3", "-c", programs.HOG, "1", str(4 * LIMIT_MIB)], resources={"memory": f"{LIMIT_MIB}Mi"}
    )
    ended = controller.play("train", job)
    assert ended.code != 0
    assert "lab-2" in ended.errors[0] and "137" in ended.errors[0], ended.errors
    record = controller.record()
    assert (record["outcome"], record["cause"], record["exit_code"]) == ("failed", "crash", 137)
    exits = [event for event in controller.events() if event["kind"] == "worker_exit" and event["exit_code"] == 137]
    assert [(event["node"], event["rank"]) for event in exits] == [("lab-2", 1)]
    assert controller.play("report").code == 0
    report = json.loads((controller.run_folder / "report" / "report.json").read_text())
    assert "lab-2" in json.dumps(report) and "137" in json.dumps(report)
    for node in lab.nodes:
        assert systemd.traces(lab, node.name, controller.run_id) == []
