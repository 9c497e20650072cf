# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd does for rented machines: the dead-man timer on one, the reaper on a permanent one."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, until
from ansible_collections.muster.training.tests.fakes.api import FakeApi
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.lab.nodes import Lab
from ansible_collections.muster.training.tests.lab.plays import Controller
from ansible_collections.muster.training.tests.support.loopback import reachable

RENTED = {"ownership": "rented", "provider": "runpod", "name": "lab-1"}
UNIT = "muster-reaper.service"


class Clock:
    """This machine's clock, for a fake that other machines ask."""

    def time(self) -> float:
        return time.time()

    monotonic = time

    def later(self, seconds: float, action: t.Callable[[], None]) -> None:
        threading.Timer(seconds, action).start()


def play_lease(controller: Controller, **values: t.Any) -> t.Any:
    """Run the role on the first node, which passes for a rented one."""
    roles = [{"role": "muster.training.lease", "vars": values}]
    place = controller.folder / "lease.yml"
    place.write_text(json.dumps([{"hosts": "lab-1", "gather_facts": False, "roles": roles}]))
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", str(controller.inventory), str(place), "-e", json.dumps({"muster_node": RENTED})]
    play = Play(argv, controller._environment({}), controller.folder / "lease.log", controller.folder, 0o022)
    controller.plays.append(play)
    return play.wait()


def test_a_machine_whose_lease_nobody_renews_goes_off(lab: Lab, controller: Controller) -> None:
    done = play_lease(controller, lease_s=900, lease_interval_s=2)
    assert done.code == 0 and done.changed > 0, done.output
    again = play_lease(controller, lease_s=900, lease_interval_s=2)
    assert again.code == 0 and again.changed == 0, again.output
    assert lab.ask("lab-1", "systemctl", "is-active", "muster-lease.timer") == "active"
    assert 0 < int(lab.ask("lab-1", "/usr/local/sbin/muster-lease", "left")) <= 900
    lab.ask("lab-1", "sh", "-c", "echo $(($(date +%s) + 4)) >/var/lib/muster/lease/deadline")
    container = lab.node("lab-1").container
    try:
        state = lambda: lab.podman.json("inspect", container)[0]["State"]["Status"]  # noqa: E731
        until(lambda: state() in ("exited", "stopped"), "the machine to power off", 60)
    finally:
        lab.power_on("lab-1")
        lab.ask("lab-1", "systemctl", "disable", "--now", "muster-lease.timer")
        lab.ask("lab-1", "/usr/local/sbin/muster-lease", "remove")


@pytest.fixture
def rented(lab: Lab, controller: Controller) -> Iterator[tuple[FakeApi, dict[str, t.Any]]]:
    """A provider that the nodes can ask, and the variables of a pool there; lab-2 is the permanent machine."""
    api = FakeRunpod(t.cast(t.Any, Clock()), boot_s=1.0)
    gateway = lab.ask("lab-2", "sh", "-c", "ip -4 route show default | awk '{print $3; exit}'")
    (controller.folder / "key.pub").write_text(KEY + "\n")
    (controller.folder / "token").write_text(TOKEN)
    lab.ask("lab-2", "sh", "-c", f"umask 077; printf %s {TOKEN} >/root/scoped-key")
    with api.loopback() as url, reachable(url, gateway) as outer:
        account = {"name": "runpod", "api_url": outer, "validate_certs": False}
        yield (
            api,
            {
                "muster_providers": [{**account, "api_token_file": str(controller.folder / "token")}],
                "muster_reaper_providers": [{**account, "api_token_file": "/root/scoped-key"}],
                "muster_reaper_host": "lab-2",
                "muster_lease": False,
                "rented_nodes_pool": "h100",
                "rented_nodes_count": 2,
                "rented_nodes_candidates": [{"provider": "runpod", "gpu_model": "H100", "gpu_count": 1, "image": "i"}],
                "rented_nodes_ssh_public_key_file": str(controller.folder / "key.pub"),
                "rented_nodes_readiness": {"ssh": False},
            },
        )
    lab.run("lab-2", "systemctl", "disable", "--now", "muster-reaper.timer")
    lab.run("lab-2", "rm", "-rf", "/var/lib/muster/reaper", "/opt/muster-reaper", "/root/scoped-key")


def test_the_reaper_ends_what_costs_too_much_although_the_controller_is_gone(
    lab: Lab, controller: Controller, rented: tuple[FakeApi, dict[str, t.Any]]
) -> None:
    api, values = rented
    installed = controller.play("reaper", **values)
    assert installed.code == 0, installed.output
    again = controller.play("reaper", **values)
    assert again.code == 0 and again.changed == 0, again.output
    assert lab.ask("lab-2", "systemctl", "is-active", "muster-reaper.timer") == "active"
    assert lab.ask("lab-2", "systemctl", "is-enabled", "muster-reaper.timer") == "enabled"
    lab.ask("lab-2", "systemctl", "stop", "muster-reaper.timer")

    done = controller.play("rent", **values, rented_nodes_run_id="r1", rented_nodes_max_cost_usd=0.0001)
    assert done.code == 0 and len(api.alive()) == 2, done.output
    shutil.rmtree(controller.state)
    time.sleep(1)
    lab.ask("lab-2", "systemctl", "start", UNIT)
    assert api.alive() == [] and api.violations == []
    said = lab.ask("lab-2", "journalctl", "--no-pager", "-o", "cat", "-u", UNIT)
    found = json.loads(next(line for line in said.splitlines() if line.startswith('{"leases"')))
    assert len(found["leases"]) == 2 and all("has cost" in item["reason"] for item in found["reasons"])
    assert TOKEN not in said
    assert (
        pathlib.PurePosixPath(
            lab.ask("lab-2", "sh", "-c", "ls /var/lib/muster/reaper/lab/incoming/*.jsonl || echo /none")
        ).name
        == "none"
    )
