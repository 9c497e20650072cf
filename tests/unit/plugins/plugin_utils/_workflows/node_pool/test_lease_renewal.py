# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leases of rented machines are renewed while somebody uses them, with the script that the role places."""

from __future__ import annotations

import os
import pathlib
import subprocess
import threading
import time

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import Remote
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import lease_renewal

SCRIPT = pathlib.Path(__file__).resolve().parents[6] / "roles" / "lease" / "files" / "muster-lease"


class Machine:
    """A machine that is a folder: its script is the role's own."""

    def __init__(self, folder: pathlib.Path, name: str = "m") -> None:
        self.root = folder / name
        self.root.mkdir()
        self.commands = 0
        self.remote = Remote(name, self.shell)

    def shell(self, command: str, data: bytes) -> tuple[int, str, str]:
        self.commands += 1
        env = {"PATH": os.environ["PATH"], "MUSTER_LEASE_ROOT": str(self.root / "lease")}
        done = subprocess.run(["sh", "-c", command], input=data, capture_output=True, env=env, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    @property
    def left(self) -> float:
        return int((self.root / "lease" / "deadline").read_text()) - time.time()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    place = tmp_path / "muster-lease"
    place.write_bytes(SCRIPT.read_bytes())
    place.chmod(0o755)
    monkeypatch.setattr(lease_renewal, "SCRIPT", str(place))
    return place


def test_the_lease_of_every_machine_is_renewed(tmp_path: pathlib.Path, script: pathlib.Path) -> None:
    machines = [Machine(tmp_path, name) for name in "ab"]
    assert lease_renewal.renew_leases([machine.remote for machine in machines], 3600) == {}
    assert all(3590 < machine.left <= 3600 for machine in machines)


def test_a_machine_without_a_lease_is_no_problem(tmp_path: pathlib.Path, script: pathlib.Path) -> None:
    script.unlink()
    machine = Machine(tmp_path)
    assert lease_renewal.renew_leases([machine.remote]) == {}
    assert not (machine.root / "lease").exists()


def test_a_lease_that_cannot_be_renewed_is_told_once(tmp_path: pathlib.Path, script: pathlib.Path) -> None:
    script.write_text("#!/bin/sh\necho the disk is full >&2\nexit 1\n")
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    machine = Machine(tmp_path)
    told: list[str] = []
    now = [100.0]
    renewal = lease_renewal.LeaseRenewal([machine.remote], told.append, 3600, lambda: now[0])
    for seconds in (0, 1, 359, 1, 361):
        now[0] += seconds
        renewal.tick()
        renewal.wait()
    assert machine.commands == 3
    assert len(told) == 1 and told[0].startswith("warning: m: its lease could not be renewed (")


def test_renewal_begins_at_once_and_only_for_rented_machines(tmp_path: pathlib.Path, script: pathlib.Path) -> None:
    machines = [Machine(tmp_path, name) for name in ("rent", "own", "bare")]
    hostvars = {
        "rent": {"muster_node": {"ownership": "rented"}},
        "own": {"muster_node": {"ownership": "owned"}},
        "bare": {},
    }
    remotes = lease_renewal.select_rented([machine.remote for machine in machines], hostvars)
    assert [remote.name for remote in remotes] == ["rent"]
    renewal = lease_renewal.LeaseRenewal(remotes, lambda _line: None, 3600, lambda: 0.0)
    renewal.tick()
    renewal.wait()
    assert [machine.commands for machine in machines] == [1, 0, 0]
    nobody = lease_renewal.LeaseRenewal([], lambda _line: None)
    nobody.tick()
    nobody.wait()


def test_a_machine_that_hangs_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    free = threading.Event()

    def hangs(_command: str, _data: bytes) -> tuple[int, str, str]:
        free.wait(30)
        return 0, "", ""

    now = [0.0]
    renewal = lease_renewal.LeaseRenewal([Remote("m", hangs)], lambda _line: None, 3600, lambda: now[0])
    began = time.monotonic()
    for _look in range(3):
        renewal.tick()
        now[0] += 1000
    assert time.monotonic() - began < 10
    free.set()
    renewal.wait()
