# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of ssh_config files, by the ssh of this machine: each is what ssh itself would connect to."""

from __future__ import annotations

import pathlib
import shlex
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._providers.node_record import ProviderHost
from ansible_collections.muster.training.plugins.plugin_utils._providers.ssh_config import client, mapping

from .configs import CONFIGS, Files


def write(folder: pathlib.Path, files: str | Files) -> pathlib.Path:
    for name, text in ({"main": files} if isinstance(files, str) else files).items():
        (folder / name).write_bytes(text.replace("{folder}", str(folder)).encode())
        (folder / name).chmod(0o600)
    return folder / "main"


def read(folder: pathlib.Path, files: str | Files, *patterns: str) -> dict[str, ProviderHost]:
    listed = client.list_hosts(str(write(folder, files)), patterns or ("*",))
    return {host.name: host for host in map(mapping.to_host, listed)}


def test_there_are_forty_files() -> None:
    assert len(CONFIGS) >= 40


@pytest.mark.parametrize("name", CONFIGS)
def test_a_host_is_what_ssh_makes_of_it(tmp_path: pathlib.Path, name: str) -> None:
    files, wanted = CONFIGS[name]
    found = {}
    for alias, host in read(tmp_path, files).items():
        assert host.direct and Node.from_dict(t.cast("dict[str, t.Any]", host.record)).name == alias
        data = host.data
        found[alias] = (*host.direct, data["ssh_config_proxy_jump"], data["ssh_config_identity_files"])
    assert found == wanted


@pytest.mark.parametrize("name", CONFIGS)
def test_ansible_connects_as_ssh_would(tmp_path: pathlib.Path, name: str) -> None:
    """What Ansible gives to ssh resolves to the same as the name alone."""
    path = write(tmp_path, CONFIGS[name][0])
    for alias, host in read(tmp_path, CONFIGS[name][0]).items():
        assert host.direct
        address, port, user = host.direct
        key = host.data.get("ansible_ssh_private_key_file")
        arguments = ["-o", f"Port={port}", *(["-o", f'IdentityFile="{key}"'] if key else [])]
        arguments += ["-o", f"User={user}"] if user else []
        arguments += shlex.split(str(host.data.get("ansible_ssh_common_args", "")))
        ours = client.parse_settings(client.run_ssh("ssh", [*arguments, address]))
        theirs = client.parse_settings(client.run_ssh("ssh", ["-F", str(path), alias]))
        for keyword in ("hostname", "port", "user", "proxyjump", "identitiesonly", "userknownhostsfile"):
            assert ours.get(keyword) == theirs.get(keyword), keyword
        first = next(iter(theirs["identityfile"])).replace("%n", alias)
        assert first in ours["identityfile"] and (not key or ours["identityfile"][0] == key)


def test_addresses_are_in_their_network(tmp_path: pathlib.Path) -> None:
    text = "".join(
        f"Host {name}\n HostName {address}\n"
        for name, address in (("m", "100.64.1.2"), ("l", "10.0.0.2"), ("p", "8.8.8.8"), ("n", "gpu.example"))
    )
    networks = {name: host.record["network_types"] for name, host in read(tmp_path, text).items()}
    assert networks == {"m": ["mesh"], "l": ["lan"], "p": ["public"], "n": []}


def test_only_the_names_that_are_asked_for(tmp_path: pathlib.Path) -> None:
    assert set(read(tmp_path, "Host gpu-1 spark-1 spark-2\n", "spark-*")) == {"spark-1", "spark-2"}


def test_what_else_leads_to_a_host_is_carried(tmp_path: pathlib.Path) -> None:
    text = (
        "Host a\n HostKeyAlias k\n CertificateFile ~/.ssh/c.pub\n IdentitiesOnly yes\n UserKnownHostsFile ~/kh\n"
        " StrictHostKeyChecking accept-new\n ProxyCommand nc -x proxy:1080 %h %p\n IdentityAgent /run/agent\n"
    )
    arguments = shlex.split(str(read(tmp_path, text)["a"].data["ansible_ssh_common_args"]))
    assert arguments[:2] == ["-F", str(tmp_path / "main")]
    assert {"HostKeyAlias=k", "CertificateFile=~/.ssh/c.pub", "IdentitiesOnly=yes", "IdentityAgent=/run/agent"} < set(
        arguments
    )
    assert {"StrictHostKeyChecking=accept-new", "ProxyCommand=nc -x proxy:1080 %h %p"} < set(arguments)


def test_keys_are_named_and_not_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "key").write_text("KEY-CANARY-90ab")
    assert "KEY-CANARY-90ab" not in repr(read(tmp_path, f"Host a\n IdentityFile {tmp_path}/key\n"))


REFUSED: dict[str, tuple[str | Files, str]] = {
    "unknown keyword": ("Host a\n Fooo bar\n", "main: line 2: Bad configuration option: fooo. Correct that line"),
    "port": ("Host a\n Port 99999\n", "main line 2: Bad port"),
    "option as a host": (
        "Host a\n HostName -oProxyCommand=x\n",
        "Host a: HostName '-oproxycommand=x' is neither a name",
    ),
    "option as a name": ("Host -oX\n", "Host -oX: a name must not begin with '-'"),
    "shell in a host": ("Host a\n HostName 'x$(id)'\n", "is neither a name nor an address"),
    "sshpass": ("Host a\n ProxyCommand sshpass -p hunter22 ssh j -W %h:%p\n", "Host a: ProxyCommand has a password"),
    "token": ("Host a\n ProxyCommand tunnel --token=hunter22 %h\n", "Use a key, or ProxyJump, instead of a password"),
    "itself": ({"main": "Include {folder}/main\nHost a\n"}, "includes itself, or Include lines are nested too deep"),
    "folder": ({"main": "Include {folder}\nHost a\n"}, "cannot be read (is a directory)"),
    "huge": ("Host a\n" + "#" * 2_000_000, "is larger than 1048576 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_in_one_line(tmp_path: pathlib.Path, name: str) -> None:
    files, words = REFUSED[name]
    with pytest.raises(MusterError) as caught:
        read(tmp_path, files)
    text = str(caught.value)
    assert words in text and "hunter22" not in text and len(text.splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"none: cannot be read \(no such file or directory\)\. Name the file"):
        client.list_hosts(str(tmp_path / "none"))


def test_no_ssh_and_an_ssh_that_hangs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write(tmp_path, "Host a\n"))
    with pytest.raises(MusterError, match="ssh -G: no program '/none/ssh'"):
        client.list_hosts(path, binary="/none/ssh")
    with pytest.raises(MusterError, match="cannot be run"):
        client.list_hosts(path, binary=str(tmp_path))

    def hang(*_args: object, **_options: object) -> t.NoReturn:
        raise subprocess.TimeoutExpired("ssh", 20)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(MusterError, match="no answer in 20 s. Check the programs of Match exec lines"):
        client.list_hosts(path)
