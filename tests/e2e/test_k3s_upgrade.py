# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``upgrade``: what is done to each machine in which order, what is kept, and where it stops.

Real: the playbook, the roles ``devices`` and ``k3s``, the rules of the waves, files. Stand-ins: the actions that reach
machines and cluster (``tests/fakes/upgrade_actions.py``), and systemctl. With K3s on machines it is tests/lab.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.wave_world import Dict, WaveFleet

ACTIONS = {
    "k3s_cluster_info": "upgrade_actions.UpgradeClusterInfo",
    "k3s_node": "upgrade_actions.UpgradeNode",
    "kube_info": "upgrade_actions.UpgradeKubeInfo",
    "kube_node": "wave_actions.KubeNode",
    "kube_wait": "wave_actions.KubeWait",
}
REAL = ("cluster_backup_info", "node_info")
OLD, NEW = "v1.34.10+k3s1", "v1.34.11+k3s1"
NAMES = ("s1", "s2", "s3", "a1", "a2")
_LIMIT_S = 240
_SYSTEMCTL = """#!/bin/sh
case "$*" in
  *show*) echo LoadState=loaded; echo "ActiveState=$(cat "$MUSTER_TEST_UPGRADE/active" 2>/dev/null || echo active)";;
  *is-enabled*) echo enabled;;
  *restart*|*start*|*stop*) echo "$*" >> "$MUSTER_TEST_UPGRADE/units"
    case "$*" in *stop*) echo inactive;; *) echo active;; esac > "$MUSTER_TEST_UPGRADE/active";;
esac
"""


class Fleet(WaveFleet):
    """Three servers and two agents, and who runs the playbook."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder, folder / "hosts.json", NAMES)
        self.overlay(ACTIONS, REAL)
        for name in NAMES:
            for kind in ("bin", "config", "kept", "db"):
                (folder / kind).mkdir(exist_ok=True)
            (folder / "bin" / name).write_text(OLD)
            (folder / "config" / name).write_text("old")
            (folder / "db" / name).mkdir()
            (folder / "db" / name / "state.db").write_text(f"of {name}")
        (folder / "programs").mkdir()
        (folder / "programs" / "systemctl").write_text(_SYSTEMCTL)
        (folder / "programs" / "systemctl").chmod(0o755)
        hosts_now = {name: {"kubelet": OLD} for name in NAMES}
        self.place.write_text(json.dumps({"hosts": hosts_now, "asked": [], "version": NEW}))

    def versions(self) -> dict[str, str]:
        """The binary of each machine."""
        return {name: (self.folder / "bin" / name).read_text() for name in NAMES}

    def notes(self) -> list[str]:
        """The notes of upgrades on machines."""
        places = [*self.folder.glob("kept/*/closed"), *self.folder.glob("kept/*/unproven")]
        return sorted(f"{place.parent.name}/{place.name}" for place in places)

    def play(self, *words: str, code: int = 0, **values: t.Any) -> str:
        """Run the playbook and return what it printed, on one line."""
        where = {
            "__kept": str(self.folder / "kept" / "{{ inventory_hostname }}"),
            "__program": str(self.folder / "bin" / "{{ inventory_hostname }}"),
            "__config": str(self.folder / "config" / "{{ inventory_hostname }}"),
            "__datastore": str(self.folder / "db" / "{{ inventory_hostname }}"),
            # Backups have tests of their own; here is no control plane that one could be taken of.
            "muster_upgrade_backup": False,
            "__k3s_server_data": str(self.folder / "server"),
        }
        environment = {
            "PATH": f"{self.folder / 'programs'}:{os.environ['PATH']}",
            "MUSTER_TEST_UPGRADE": str(self.folder),
        }
        extra = {**where, "muster_nodes_ready_s": 4, **values}
        return self.run("upgrade", *words, code=code, limit_s=_LIMIT_S, env=environment, **extra)


def steps(*names: str) -> list[str]:
    """What is done to machines that are well, one after another."""
    words = ("cordoned", "drained", "place", "start", "schedulable")
    return [f"{step} {name}" for name in names for step in words]


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def test_each_machine_is_closed_kept_changed_and_opened_and_again_nothing_is_done(fleet: Fleet) -> None:
    fleet.change("a1", runs=["llm-7"])
    said = fleet.play("--check")
    assert "wave 4 of 5 (at most 1 agents unavailable): a1" in said
    assert f"a1 (agent): K3s {OLD} -> {NEW}; runs on it: llm-7" in said
    assert fleet.asked == [] and not list((fleet.folder / "kept").iterdir()) and set(fleet.versions().values()) == {OLD}
    fleet.play()
    assert fleet.asked == steps("s1", "s2", "s3", "a1", "a2")
    assert set(fleet.versions().values()) == {NEW} and fleet.closed() == [] and fleet.notes() == []
    for name in NAMES:
        assert (fleet.folder / "kept" / name / "k3s").read_text() == OLD
    # The datastore of each server was copied while its K3s was stopped.
    assert (fleet.folder / "kept" / "s2" / "db" / "state.db").read_text() == "of s2"
    assert (fleet.folder / "units").read_text().split() == ["stop", "k3s", "start", "k3s"] * 3
    fleet.change("a1")
    again = fleet.play()
    assert "K3s of all machines is as it should be" in again and fleet.asked == []
    assert again.partition("PLAY RECAP")[2].count("changed=0") == len([*NAMES, "localhost"])


def test_an_agent_whose_k3s_does_not_start_gets_the_one_back_that_it_had(fleet: Fleet) -> None:
    fleet.change("a1", broken=True)
    said = fleet.play(code=2)
    line = f"a1: K3s {NEW} was not proven, and it has the K3s back that it had: a1: K3s is stopped again"
    assert line in said and "Not begun: a2. Mend it, then run this again" in said
    assert fleet.versions()["a1"] == OLD and fleet.closed() == [] and fleet.notes() == []
    assert (fleet.folder / "config" / "a1").read_text() == "old"
    assert "cordoned a2" not in fleet.asked and "restart k3s-agent" in (fleet.folder / "units").read_text()
    fleet.change("a1", broken=False)
    fleet.play()
    assert fleet.asked == steps("a1", "a2")


def test_a_server_that_is_not_proven_stays_closed_and_no_second_one_is_touched(fleet: Fleet) -> None:
    fleet.change("s2", broken=True)
    said = fleet.play(code=2)
    assert "s2: its K3s was changed and is not proven, it stays closed (the K3s before is " in said
    assert "Not begun: s3, a1, a2." in said and fleet.closed() == ["s2"] and "cordoned s3" not in fleet.asked
    assert fleet.notes() == ["s2/closed", "s2/unproven"]
    (fleet.folder / "db" / "s2" / "state.db").write_text("changed by the new one")
    fleet.change("s2", broken=False)
    fleet.play()
    # What was kept is of the time before the new K3s was started.
    assert (fleet.folder / "kept" / "s2" / "db" / "state.db").read_text() == "of s2"
    assert (fleet.folder / "kept" / "s2" / "k3s").read_text() == OLD
    assert fleet.asked[:5] == steps("s2") and fleet.asked[5:] == steps("s3", "a1", "a2") and fleet.notes() == []


def test_a_kubelet_that_does_not_report_is_not_proven(fleet: Fleet) -> None:
    fleet.change("s1", silent=True)
    said = fleet.play(code=2)
    assert "s1: its K3s was changed and is not proven, it stays closed" in said and fleet.closed() == ["s1"]


def test_pods_that_do_not_end_leave_k3s_and_open_the_machine(fleet: Fleet) -> None:
    fleet.change("s1", stuck=True)
    said = fleet.play(code=2)
    assert "s1: its K3s was not changed: s1: 1 pods have not ended in 5 s. Not begun: s2, s3, a1, a2." in said
    assert fleet.closed() == [] and fleet.notes() == [] and set(fleet.versions().values()) == {OLD}


def test_runs_may_end_first_and_one_that_does_not_is_named(fleet: Fleet) -> None:
    fleet.change("s1", runs=["llm-7"])
    fleet.change("a1", runs=["endless"])
    said = fleet.play(code=2, muster_upgrade_on_jobs="wait", muster_upgrade_wait_s=2)
    assert "FAILED - RETRYING" in said and fleet.versions()["s3"] == NEW
    assert "a1: its K3s was not changed: endless: not ended in 2 s. Wait longer (muster_upgrade_wait_s)" in said
    assert fleet.closed() == [] and fleet.notes() == [] and fleet.versions()["a1"] == OLD


def test_a_machine_that_was_cordoned_before_stays_so(fleet: Fleet) -> None:
    fleet.change("s3", closed=True)
    fleet.play()
    assert fleet.closed() == ["s3"] and set(fleet.versions().values()) == {NEW} and fleet.notes() == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"muster_upgrade_on_jobs": "kill"}, "muster_upgrade_on_jobs: is 'kill'. Use checkpoint"),
        ({"muster_upgrade_max_unavailable": "all"}, "max_unavailable: is 'all'. Use a number such as 1"),
    ],
)
def test_what_is_not_an_option_is_said_before_anything_is_done(fleet: Fleet, values: Dict, says: str) -> None:
    assert says in fleet.play(code=2, **values) and fleet.asked == []


def test_a_server_that_does_not_run_is_named_before_anything_is_done(fleet: Fleet) -> None:
    fleet.change("s2", down=True)
    assert "s2: K3s does not run on this server, and with another one down" in fleet.play(code=2)
    assert fleet.asked == []


def test_a_server_that_cannot_be_backed_up_is_not_changed(fleet: Fleet) -> None:
    said = fleet.play(code=2, muster_upgrade_backup=True)
    assert "s1: no K3s server has its data on it" in said and fleet.asked == []
    assert set(fleet.versions().values()) == {OLD}
