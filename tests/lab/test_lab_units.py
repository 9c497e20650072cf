# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As root: the agent of a run is a transient systemd unit that outlives its starter and leaves nothing behind."""

from __future__ import annotations

import signal
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.lab import systemd
from ansible_collections.muster.training.tests.lab.nodes import Lab
from ansible_collections.muster.training.tests.lab.plays import Controller

MEMORY_MIB = 512
SECRET = "lab-secret-not-to-be-seen-anywhere"


@pytest.fixture(scope="module")
def running(lab: Lab) -> t.Iterator[Controller]:
    """A run of one rank a node with a memory limit and a secret, living."""
    made = Controller(lab)
    job = made.rank_job(
        resources={"memory": f"{MEMORY_MIB}Mi"}, secret_refs=[{"name": "LAB_SECRET", "from": "env", "as": "env"}]
    )
    play = made.start("train", job, env={"LAB_SECRET": SECRET})
    made.wait_began()
    yield made
    made.finish()
    play.wait()
    made.close()


def test_agent_is_a_transient_unit_in_the_slice(lab: Lab, running: Controller) -> None:
    for node in lab.nodes:
        assert systemd.units(lab, node.name) == [systemd.unit(running, node.name)]
        shown = systemd.show(lab, node.name, systemd.unit(running, node.name))
        wanted = {
            "ActiveState": "active",
            "Transient": "yes",
            "Slice": "muster.slice",
            "Restart": "on-failure",
            # Only the supervisor is asked to stop; it then lets the ranks save.
            "KillMode": "mixed",
            # Without this systemd stops the whole unit when the kernel kills one rank that wants too much memory.
            "OOMPolicy": "continue",
            "MemoryMax": str(MEMORY_MIB << 20),
        }
        assert {key: shown[key] for key in wanted} == wanted
        assert shown["ControlGroup"] == f"/muster.slice/{systemd.unit(running, node.name)}"


def test_control_group_holds_supervisor_and_ranks(lab: Lab, running: Controller) -> None:
    ranks = {rank: pid for rank, _, pid, _ in running.began()}
    for rank, node in enumerate(lab.nodes):
        unit = systemd.unit(running, node.name)
        held = systemd.members(lab, node.name, unit)
        main = int(systemd.show(lab, node.name, unit)["MainPID"])
        assert "supervise" in held[main]
        assert ranks[rank] in held


def test_secret_reaches_the_ranks_and_nothing_else(lab: Lab, running: Controller) -> None:
    assert {length for *_, length in running.began()} == {len(SECRET)}
    for node in lab.nodes:
        unit = systemd.unit(running, node.name)
        for argv in (
            ("systemctl", "show", unit),
            ("systemctl", "cat", unit),
            ("systemctl", "show-environment"),
            ("journalctl", "--no-pager", "--all"),
            ("ps", "-eo", "args"),
            ("sh", "-c", f"cat /run/systemd/transient/{unit} /proc/[0-9]*/cmdline"),
        ):
            assert SECRET not in lab.ask(node.name, *argv), argv
        places = ("/root", "/home", "/run", "/var/log", "/tmp")
        search = ("find", *places, "-xdev", "-type", "f", "-exec", "grep", "-lF", SECRET, "{}", "+")
        holders = lab.run(node.name, *search).stdout.decode().split()
        assert [name.rpartition("/")[2] for name in holders] == ["env.json"], "only the run's own file holds it"
        assert lab.ask(node.name, "stat", "-c", "%a %U", *holders) == "600 root"


def test_run_survives_its_controller_and_connections(lab: Lab, controller: Controller) -> None:
    job = controller.rank_job()
    play = controller.start("train", job)
    began = controller.wait_began()
    until(lambda: controller.run_folder.joinpath("events.jsonl").exists(), "the first events")
    play.kill(signal.SIGKILL)
    for node in lab.nodes:
        # The connection's own processes on the node too, as when the network goes away for good.
        lab.run(node.name, "sh", "-c", "kill -KILL $(ps -C sshd-session -o pid=)")
        assert systemd.show(lab, node.name, systemd.unit(controller, node.name))["ActiveState"] == "active"
    again = controller.start("train", job)
    until(lambda: "already running, following it" in again.output, "the second controller to follow the run")
    controller.finish()
    ended = again.wait()
    assert ended.code == 0, ended.output
    assert ended.changed == 0
    assert controller.began() == began, "no rank was started again"
    record = controller.record()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    for node in lab.nodes:
        assert systemd.traces(lab, node.name, controller.run_id) == []
