# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``upgrade_drivers`` on a cluster: what is done to each machine in which order, and where it stops.

Real: the playbook, the role ``devices``, the rules of the waves. Stand-ins: the actions that reach machines and cluster
(``tests/fakes/wave_actions.py``), and the role ``gpu_driver``. On machines with real apt it is tests/lab.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.wave_world import Dict, WaveFleet

ACTIONS = {
    "node_device_info": "wave_actions.NodeDeviceInfo",
    "kube_info": "wave_actions.KubeInfo",
    "kube_node": "wave_actions.KubeNode",
    "kube_wait": "wave_actions.KubeWait",
    "gpu_verify": "wave_actions.GpuVerify",
}
_LIMIT_S = 120
# The driver's role: the new driver is there, and works or does not.
_CHANGE = '[{name: Change it, ansible.builtin.command: {argv: ["%s", -c, "%s", "{{ inventory_hostname }}"]}}]\n'
_SET = (
    "import sys;from ansible_collections.muster.training.tests.fakes.wave_actions import State\\n"
    "with State.open() as state: state.host(sys.argv[1])['driver']='new';state.note('change '+sys.argv[1])"
)
_OFTEN = """
import sys
from ansible_collections.muster.training.tests.fakes.wave_actions import State
for _number in range(50):
    with State.open() as state:
        state.note(sys.argv[1])
"""
_START = """
- name: Verify it
  ansible.builtin.assert:
    that: not ((lookup('file', lookup('env', 'MUSTER_TEST_WAVES')) | from_json).hosts[inventory_hostname].broken | default(false))
    fail_msg: "{{ inventory_hostname }}: the driver is installed and does not work"
"""


class Fleet(WaveFleet):
    """A server and three agents, and who runs the playbook."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder, folder / "waves.json", ("s1", "a1", "a2", "a3"))
        self.overlay(ACTIONS, roles=("gpu_driver",))
        tasks = self.collection / "roles" / "gpu_driver" / "tasks"
        tasks.mkdir(parents=True)
        (tasks / "change.yml").write_text(_CHANGE % (sys.executable, _SET))
        (tasks / "start.yml").write_text(_START)
        self.set(s1="old", a1="old", a2="old", a3="new")

    def set(self, **drivers: str) -> None:
        """Set which driver each machine has."""
        units = {name: "k3s" if name == "s1" else "k3s-agent" for name in drivers}
        hosts = {name: {"driver": driver, "k3s": units[name]} for name, driver in drivers.items()}
        self.place.write_text(json.dumps({"hosts": hosts, "asked": []}))

    def play(self, *words: str, code: int = 0, **values: t.Any) -> str:
        """Run the playbook and return what it printed, on one line."""
        marks = {
            "__devices_mark": str(self.folder / "marks" / "{{ inventory_hostname }}" / "drained"),
            "__unproven_mark": str(self.folder / "marks" / "{{ inventory_hostname }}" / "unproven"),
        }
        given = {"gpu_driver_branch": 595, "gpu_driver_reboot": "when_needed", "gpu_verify_image": "train:1"}
        extra = {**marks, **given, **values}
        return self.run("upgrade_drivers", *words, code=code, limit_s=_LIMIT_S, env={}, **extra)


def steps(name: str) -> list[str]:
    """What is done to one machine that is well."""
    return [f"{step} {name}" for step in ("cordoned", "drained", "change", "prove", "schedulable")]


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def test_each_machine_is_closed_changed_proven_and_opened_and_again_nothing_is_done(fleet: Fleet) -> None:
    said = fleet.play("--check")
    for number, name in enumerate(("a1", "a2", "s1"), 1):
        assert f"wave {number} of 3 (at most 1 unavailable): {name}" in said
    assert fleet.asked == [] and not (fleet.folder / "marks").exists()
    fleet.play()
    assert fleet.asked == [*steps("a1"), *steps("a2"), *steps("s1")]
    assert fleet.closed() == [] and not list((fleet.folder / "marks").rglob("*n"))
    fleet.change("a1")
    again = fleet.play()
    assert "the drivers of all machines are as they should be" in again and fleet.asked == []
    assert again.partition("PLAY RECAP")[2].count("changed=0") == 5


def test_the_first_that_is_not_proven_stays_closed_and_the_next_run_begins_there(fleet: Fleet) -> None:
    fleet.change("a2", blind=True)
    said = fleet.play(code=2)
    line = "a2: its driver was changed and is not proven, it stays closed: its pod got 2 GPUs and sees no device. Switch CDI on."
    assert f"{line} Not begun: s1. Mend it, then run this again" in said
    assert fleet.closed() == ["a2"] and fleet.asked[:5] == steps("a1") and "cordoned s1" not in fleet.asked
    assert (fleet.folder / "marks" / "a2" / "unproven").exists()
    fleet.change("a2", blind=False)
    fleet.play()
    # It is closed and empty already, and has its new driver.
    assert fleet.asked == ["cordoned a2", "drained a2", "prove a2", "schedulable a2", *steps("s1")]
    assert fleet.closed() == [] and not (fleet.folder / "marks" / "a2" / "unproven").exists()


def test_the_stand_in_loses_nothing_of_machines_that_are_worked_on_at_once(fleet: Fleet) -> None:
    words = (sys.executable, "-c", _OFTEN)
    env = {**os.environ, "MUSTER_TEST_WAVES": str(fleet.place)}
    writers = [subprocess.Popen([*words, name], env=env) for name in ("a1", "a2")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert sorted(fleet.asked) == ["a1"] * 50 + ["a2"] * 50


def test_others_of_its_wave_are_finished(fleet: Fleet) -> None:
    fleet.change("a1", broken=True)
    said = fleet.play(code=2, muster_drivers_max_unavailable="50%")
    assert "wave 1 of 2 (at most 50% unavailable): a1, a2" in said
    assert (
        "a1: its driver was changed and is not proven, it stays closed: a1: the driver is installed and does not"
        in said
    )
    assert fleet.closed() == ["a1"] and fleet.asked[-2:] == ["prove a2", "schedulable a2"]


def test_pods_that_do_not_end_leave_the_driver_and_open_the_machine(fleet: Fleet) -> None:
    fleet.change("a1", stuck=True)
    said = fleet.play(code=2)
    assert "a1: its driver was not changed: a1: 1 pods have not ended in 5 s. Not begun: a2, s1. Mend it" in said
    assert fleet.closed() == [] and fleet.asked == ["cordoned a1", "stuck a1", "schedulable a1"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"gpu_verify_image": ""}, "a1: gpu_verify_image: no image is named with which a pod proves the GPUs"),
        ({"gpu_driver_branch": ""}, "no driver is named. Set gpu_driver_branch, such as 595"),
        ({"muster_drivers_max_unavailable": "all"}, "max_unavailable: is 'all'. Use a number such as 1"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_done(fleet: Fleet, values: Dict, says: str) -> None:
    assert says in fleet.play(code=2, **values)
    assert fleet.asked == []
