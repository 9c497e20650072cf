# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readiness probe over ssh: pinned keys, failing connections, refused addresses."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, SshEndpoint
from ansible_collections.muster.training.plugins.module_utils._model.offer import Hardware
from ansible_collections.muster.training.plugins.plugin_utils._provision.probe_ssh import SshProber
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.probe_output import (
    VM,
    WANTED,
    output,
)


class _Ssh:
    def __init__(self, returncode: int = 0, stdout: str = "", stderr: str = "", error: Exception | None = None) -> None:
        self.done = subprocess.CompletedProcess([], returncode, stdout, stderr)
        self.error = error
        self.argv: list[str] = []

    def __call__(self, argv: list[str], **_options: t.Any) -> subprocess.CompletedProcess[str]:
        self.argv = argv
        if self.error:
            raise self.error
        return self.done


_UNKNOWN = Hardware()


def probe(
    tmp_path: pathlib.Path,
    ssh: _Ssh,
    endpoint: SshEndpoint | None = None,
    gpus: int | None = 8,
    ident: str = "i-1",
    ordered: Hardware = _UNKNOWN,
) -> t.Any:
    prober = SshProber(tmp_path / "known_hosts", WANTED, identity="/keys/id", execute=ssh)
    ssh_to = endpoint or SshEndpoint("192.0.2.7", 2222, "ubuntu")
    record = {"gpu": {"count": gpus}}
    return prober.probe(Instance("lambda", ident, "n", None, "running", ssh=ssh_to, record=record), ordered)


def test_ssh_pins_the_key_by_machine_not_by_address(tmp_path: pathlib.Path) -> None:
    ssh = _Ssh(stdout=output(VM))
    assert probe(tmp_path, ssh).state == "ready"
    line = " ".join(ssh.argv)
    assert "HostKeyAlias=lambda-i-1" in line
    assert f"UserKnownHostsFile={tmp_path}/known_hosts/lambda-i-1" in line
    assert "StrictHostKeyChecking=accept-new" in line
    assert "StrictHostKeyChecking=no" not in line
    assert ssh.argv[-3:] == ["--", "192.0.2.7", "sh -s"]
    assert (tmp_path / "known_hosts").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("stderr", "state", "answered"),
    [
        ("ssh: connect to host 192.0.2.7 port 22: Connection refused", "not_yet", False),
        ("ubuntu@192.0.2.7: Permission denied (publickey).", "not_yet", True),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "bad", True),
        ("", "not_yet", False),
    ],
)
def test_a_connection_that_fails(tmp_path: pathlib.Path, stderr: str, state: str, answered: bool) -> None:
    report = probe(tmp_path, _Ssh(255, stderr=stderr))
    assert (report.state, report.has_answered) == (state, answered)


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("ssh", 1), FileNotFoundError(2, "No such file")])
def test_ssh_that_hangs_or_is_missing(tmp_path: pathlib.Path, error: Exception) -> None:
    assert probe(tmp_path, _Ssh(error=error)).state == "not_yet"


@pytest.mark.parametrize(
    ("ordered", "listed", "state"), [(8, None, "ready"), (16, None, "not_yet"), (16, 8, "not_yet")]
)
def test_as_many_gpus_are_asked_for_as_were_ordered(
    tmp_path: pathlib.Path, ordered: int, listed: int | None, state: str
) -> None:
    ssh = _Ssh(stdout=output(VM))
    assert probe(tmp_path, ssh, gpus=listed, ordered=Hardware(gpu_count=ordered)).state == state


def test_as_many_gpus_are_asked_for_as_were_sold(tmp_path: pathlib.Path) -> None:
    bare = _Ssh(stdout=output(VM, gpu_count=None, cuda="missing"))
    assert probe(tmp_path, bare, gpus=0).state == "ready"
    assert probe(tmp_path, bare, gpus=1).state == "not_yet"


def test_an_id_that_would_be_a_path_is_not_used(tmp_path: pathlib.Path) -> None:
    ssh = _Ssh()
    assert probe(tmp_path, ssh, ident="../../x").state == "bad"
    assert ssh.argv == []


@pytest.mark.parametrize("endpoint", [SshEndpoint("-oProxyCommand=x", 22, "root"), SshEndpoint("h", 22, "a b")])
def test_an_address_that_would_be_an_option_is_not_used(tmp_path: pathlib.Path, endpoint: SshEndpoint) -> None:
    ssh = _Ssh()
    assert probe(tmp_path, ssh, endpoint).state == "bad"
    assert ssh.argv == []
