# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Local nodes: connection variables, and a real sshd of the user's own where one can be started."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import files, processes
from ansible_collections.muster.training.plugins.plugin_utils._workflows import local_nodes
from ansible_collections.muster.training.tests.support.node_lab import fingerprint


@pytest.fixture
def root(tmp_path: pathlib.Path) -> t.Iterator[str]:
    yield str(tmp_path)
    local_nodes.absent(str(tmp_path), False)


def sshd_or_skip() -> None:
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    reason = local_nodes._reason(program)
    if reason:
        pytest.skip(reason)


def test_addresses_begin_at_the_first_of_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [local_nodes.address(index) for index in (0, 1, 9)] == ["127.0.0.1", "127.0.0.2", "127.0.0.10"]
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert local_nodes.folder(None) == pathlib.Path("/xdg/muster/local_nodes")


def test_without_a_running_sshd_the_connection_is_local(root: str) -> None:
    assert local_nodes.connection(root, "auto") == {"ansible_connection": "local"}
    files.write_json(files.private_dir(local_nodes.folder(root)) / "sshd.json", {"process": "1@1", "port": 1})
    assert local_nodes.connection(root, "auto") == {"ansible_connection": "local"}


def test_the_variables_of_a_running_sshd(root: str) -> None:
    place = files.private_dir(local_nodes.folder(root))
    with subprocess.Popen(["sleep", "60"]) as stand_in:
        state = {"process": processes.identity(stand_in.pid), "port": 2222, "user": "me", "count": 2}
        files.write_json(place / "sshd.json", state)
        found = local_nodes.connection(root, "auto")
        assert (found["ansible_connection"], found["ansible_port"], found["ansible_user"]) == ("ssh", 2222, "me")
        assert f"UserKnownHostsFile={place}/known_hosts" in found["ansible_ssh_common_args"]
        assert local_nodes.connection(root, "local") == {"ansible_connection": "local"}
        assert local_nodes.absent(root, False)["changed"] is True
        assert stand_in.wait(30) == -15


def test_why_there_is_no_sshd_is_told(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    found = local_nodes.present(root, 2, False)
    assert found == {"changed": False, "connection": "local", "reason": "no sshd is installed"}
    assert not local_nodes.folder(root).exists()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: "/sbin/sshd" if name == "sshd" else None)
    assert local_nodes.present(root, 2, False)["reason"] == "ssh-keygen is not installed"


def test_absent_twice_changes_once(root: str) -> None:
    files.private_dir(local_nodes.folder(root))
    assert local_nodes.absent(root, True)["changed"] is True and local_nodes.folder(root).exists()
    assert local_nodes.absent(root, False)["changed"] is True
    assert local_nodes.absent(root, False)["changed"] is False


def test_an_sshd_that_does_not_start_is_an_error_with_its_log(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sshd_or_skip()
    monkeypatch.setattr(local_nodes, "_config", lambda *_: "NoSuchKeyword yes\n")
    with pytest.raises(RefusedError, match="sshd did not start: .*sshd.log, or use connection: local"):
        local_nodes.present(root, 1, False)


def test_a_real_sshd_comes_serves_every_address_and_goes(root: str) -> None:
    sshd_or_skip()
    before = fingerprint(pathlib.Path(root))
    assert local_nodes.present(root, 2, True)["changed"] is True and fingerprint(pathlib.Path(root)) == before
    assert local_nodes.present(root, 2, False) == {"changed": True, "connection": "ssh", "reason": ""}
    assert local_nodes.present(root, 2, False)["changed"] is False
    found = local_nodes.connection(root, "auto")
    options = str(found["ansible_ssh_common_args"]).split()
    for index in (0, 1):
        where = [
            "-p",
            str(found["ansible_port"]),
            "-i",
            str(found["ansible_ssh_private_key_file"]),
            "-o",
            "BatchMode=yes",
        ]
        target = f"{found['ansible_user']}@{local_nodes.address(index)}"
        done = subprocess.run(
            ["ssh", *where, *options, target, "echo here"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
    pid = processes.living_pid((files.read_json(local_nodes.folder(root) / "sshd.json") or {})["process"])
    assert pid is not None and local_nodes.connection(root, "local") == {"ansible_connection": "local"}
    assert local_nodes.present(root, 3, False)["changed"] is True
    local_nodes.absent(root, False)
    assert not local_nodes.folder(root).exists() and local_nodes.connection(root, "auto") == {
        "ansible_connection": "local"
    }
