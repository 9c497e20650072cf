# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reaper as it is installed: put there by its playbook, told by ``rent``, run by its unit's own command line.

The controller's state is then removed, as AWX does with the folder of a job.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import typing as t
from collections.abc import Iterator

import jinja2
import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.rent_world import FAST_TIME, RentWorld
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

UNIT = pathlib.Path(__file__).parents[2] / "roles" / "teardown" / "templates" / "muster-reaper.service.j2"


class Keeper(RentWorld):
    """A world with a permanent machine: this one, under folders of the test's own."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root, lambda clock: FakeRunpod(clock, boot_s=60.0), "runpod")
        self.reaper = root / "reaper"
        self.host: str | None = "keeper-1"
        keeper = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        (root / "keeper.json").write_text(json.dumps({"all": {"hosts": {"keeper-1": keeper}}}))

    def values(self, **extra: t.Any) -> dict[str, t.Any]:
        found = super().values(**extra)
        return {
            **found,
            **({"muster_reaper_host": self.host} if self.host else {}),
            "muster_reaper_providers": found["muster_providers"],
            "teardown_reaper_timer": False,
            "teardown_reaper_path": str(self.root / "opt"),
            "teardown_reaper_state": str(self.reaper),
            "teardown_reaper_python": sys.executable,
            "ansible_become": False,
            **extra,
        }

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return what the unit runs, and its environment."""
        variables = {name: value for name, value in self.values().items() if name.startswith("teardown_")}
        lines = jinja2.Template(UNIT.read_text()).render(**variables).splitlines()
        given = [line.partition("=")[2].partition("=") for line in lines if line.startswith("Environment=")]
        run = next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2]
        return shlex.split(run), {name: value for name, _, value in given}

    def reap(self) -> subprocess.CompletedProcess[str]:
        """Run the unit's command as systemd does: with nothing but the unit's own environment."""
        argv, environment = self.command()
        environment["PYTHONPATH"] += f":{FAST_TIME}"
        environment |= {"MUSTER_TEST_TIME": self.clock.setting, "PATH": os.environ["PATH"]}
        return subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, timeout=90, check=False)


@pytest.fixture
def keeper(tmp_path: pathlib.Path) -> Iterator[Keeper]:
    if os.geteuid() != 0:
        lacking("the reaper's files belong to root")
    found = Keeper(tmp_path)
    with found.running():
        yield found
    assert found.api.violations == []


def test_the_reaper_ends_what_a_controller_that_vanished_has_rented(keeper: Keeper) -> None:
    inventory = ("-i", str(keeper.root / "keeper.json"))
    # Without the reaper there, nothing is ordered at all.
    refused = keeper.play("rent", *inventory, rented_nodes_reaper_state=str(keeper.reaper))
    assert refused.code == 2 and "no reaper is installed there" in refused.output
    assert keeper.alive == 0 and not [call for call in keeper.api.calls if call[0] == "create"]

    installed = keeper.play("reaper", *inventory)
    assert installed.code == 0 and installed.changed > 0, installed.output
    again = keeper.play("reaper", *inventory)
    assert again.code == 0 and again.changed == 0, again.output

    rented = keeper.play("rent", *inventory, rented_nodes_reaper_state=str(keeper.reaper))
    assert rented.code == 0, rented.output
    assert keeper.alive == 2
    shutil.rmtree(keeper.root / "state")

    early = keeper.reap()
    assert early.returncode == 0, early.stderr
    assert keeper.alive == 2
    states = [lease.state for lease in read_ledger(keeper.reaper / "lab").leases.values()]
    assert states.count("joined") == 2 and not list((keeper.reaper / "lab" / "incoming").iterdir())

    keeper.pass_time(7300)
    late = keeper.reap()
    assert late.returncode == 0, late.stderr
    assert keeper.alive == 0
    found = json.loads(late.stdout)
    assert len(found["leases"]) == 2 and all("deadline" in item["reason"] for item in found["reasons"])
    assert TOKEN not in early.stdout + early.stderr + late.stdout + late.stderr
    assert {lease.state for lease in read_ledger(keeper.reaper / "lab").leases.values()} <= {"verified"}
    kept = [path for path in keeper.reaper.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert kept == []
    for path in keeper.reaper.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_reaper_that_cannot_be_reached_is_named_and_nothing_is_ordered(keeper: Keeper) -> None:
    far = {"ansible_host": "127.0.0.1", "ansible_port": 9}
    place = keeper.root / "far.json"
    place.write_text(json.dumps({"all": {"hosts": {"keeper-1": far}}}))
    done = keeper.play("rent", "-i", str(place))
    assert done.code == 2 and any("keeper-1: " in line and "refused" in line for line in done.errors), done.output
    assert not [call for call in keeper.api.calls if call[0] == "create"]
    assert set(keeper.states) == {"verified"} or keeper.play("teardown", "-i", str(place)).code == 0


def test_a_reaper_for_a_machine_that_no_inventory_has_is_refused(keeper: Keeper) -> None:
    for host, said in (("ops-9", "muster_reaper_host: ops-9"), (None, "muster_reaper_host: not set")):
        keeper.host = host
        done = keeper.play("reaper", "-i", str(keeper.root / "keeper.json"))
        assert done.code == 2 and said in done.errors[0] and "group muster_reaper" in done.errors[0], done.output


def test_a_machine_without_systemd_is_told_what_to_run(keeper: Keeper) -> None:
    if pathlib.Path("/run/systemd/system").exists():
        pytest.skip("systemd runs here")
    done = keeper.play("reaper", "-i", str(keeper.root / "keeper.json"), teardown_reaper_timer=True)
    assert done.code == 2
    assert (
        f"-m ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.reaper_main {keeper.reaper}"
        in " ".join(done.output.split())
    )
