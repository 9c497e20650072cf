# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two scripts that rented machines get: the dead-man timer, and the cleaning before they go."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

import pytest

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
LEASE = ROLES / "lease" / "files" / "muster-lease"
HYGIENE = ROLES / "teardown" / "files" / "hygiene.sh"


class Lease:
    """The lease of a machine that is a folder; stopping it makes a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.root = folder / "lease"
        self.stopped = folder / "stopped"
        self.environment = {
            "PATH": os.environ["PATH"],
            "MUSTER_LEASE_ROOT": str(self.root),
            "MUSTER_LEASE_STOP": f"touch {self.stopped}",
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["sh", str(LEASE), *words]
        return subprocess.run(argv, capture_output=True, text=True, env=self.environment, timeout=30, check=False)

    def deadline(self, seconds: int) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "deadline").write_text(f"{int(time.time()) + seconds}\n")


@pytest.fixture
def lease(tmp_path: pathlib.Path) -> Lease:
    return Lease(tmp_path)


def test_a_lease_is_renewed_only_when_it_has_become_short(lease: Lease) -> None:
    assert lease.run("renew", "3600", "3000").stdout == "renewed\n"
    assert 3590 <= int(lease.run("left").stdout) <= 3600
    assert lease.run("renew", "3600", "3000").stdout == ""
    lease.deadline(2000)
    assert lease.run("renew", "3600", "3000").stdout == "renewed\n"
    assert (lease.root / "deadline").stat().st_mode & 0o777 == 0o600


def test_a_machine_stops_after_its_deadline_and_not_before(lease: Lease) -> None:
    lease.deadline(100)
    assert lease.run("check").returncode == 0 and not lease.stopped.exists()
    lease.deadline(-1)
    assert lease.run("check").returncode == 0 and lease.stopped.exists()


@pytest.mark.parametrize("text", ["", "soon", "12x", "-5"])
def test_a_lease_that_cannot_be_read_stops_nothing(lease: Lease, text: str) -> None:
    lease.root.mkdir()
    (lease.root / "deadline").write_text(text)
    assert lease.run("check").returncode == 0 and not lease.stopped.exists()
    assert lease.run("left").stdout == "unknown\n"


def test_a_machine_without_a_lease_is_not_stopped(lease: Lease) -> None:
    assert lease.run("check").returncode == 0 and not lease.stopped.exists()


@pytest.mark.parametrize("last", ["exit 1", "touch {mark}"])
def test_the_last_command_runs_and_may_fail(lease: Lease, tmp_path: pathlib.Path, last: str) -> None:
    lease.deadline(-1)
    final = lease.root / "final"
    final.write_text(f"#!/bin/sh\n{last.format(mark=tmp_path / 'called')}\n")
    final.chmod(0o700)
    lease.run("check")
    assert lease.stopped.exists()
    assert (tmp_path / "called").exists() is ("touch" in last)


@pytest.mark.parametrize("words", [(), ("renew",), ("renew", "soon"), ("renew", "-5"), ("renew", "60", "x"), ("stop",)])
def test_wrong_words_change_nothing(lease: Lease, words: tuple[str, ...]) -> None:
    assert lease.run(*words).returncode == 64
    assert not lease.root.exists()


def test_a_watch_ends_with_the_lease(lease: Lease) -> None:
    lease.deadline(-1)
    lease.environment["MUSTER_LEASE_INTERVAL"] = "0"
    lease.environment["MUSTER_LEASE_STOP"] = f"rm {lease.root / 'deadline'}"
    assert lease.run("watch").returncode == 0
    assert (lease.root / "pid").read_text().strip().isdigit()


def clean(root: pathlib.Path, **environment: str) -> list[dict[str, object]]:
    given = {"PATH": os.environ["PATH"], "MUSTER_HYGIENE_ROOT": str(root), **environment}
    done = subprocess.run(["sh", str(HYGIENE)], capture_output=True, text=True, env=given, timeout=60, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(report, list)
    return [item for item in report if item["step"] != "tailscale_logout"]


def test_cleaning_removes_what_is_private_and_leaves_the_rest(tmp_path: pathlib.Path) -> None:
    private = (
        "etc/rancher/k3s/config.yaml",
        "var/lib/rancher/k3s/agent/client.key",
        "root/.kube/config",
        "home/ubuntu/.cache/huggingface/token",
        "home/a b/.aws/credentials",
        "home/ubuntu/.docker/config.json",
        "home/ubuntu/.local/state/muster/nodes/x",
        "home/ubuntu/.bash_history",
    )
    kept = ("home/ubuntu/data.txt", "etc/hosts", "home/ubuntu/.cache/huggingface/hub/model")
    for name in (*private, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    report = clean(tmp_path)
    assert [name for name in private if (tmp_path / name).exists()] == []
    assert [name for name in kept if not (tmp_path / name).exists()] == []
    assert all(item["ok"] for item in report) and all(item["removed"] for item in report)
    again = clean(tmp_path)
    assert not any(item["removed"] for item in again) and len(again) == len(report) == 7


def test_cleaning_an_empty_machine_is_fine(tmp_path: pathlib.Path) -> None:
    assert all(item["ok"] and not item["removed"] for item in clean(tmp_path))


def test_what_cannot_be_removed_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc" / "rancher").mkdir(parents=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "rm").write_text("#!/bin/sh\nexit 1\n")
    (tools / "rm").chmod(0o755)
    report = clean(tmp_path, PATH=f"{tools}:{os.environ['PATH']}")
    assert [item["step"] for item in report if not item["ok"]] == ["k3s_credentials"]
