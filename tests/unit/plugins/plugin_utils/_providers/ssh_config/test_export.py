# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory as an ssh_config file: ssh reads it, and the inventory plugin reads the same machines."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._providers.ssh_config import client, export, mapping

from .configs import CONFIGS
from .test_client import write

BASE = pathlib.Path("/base")
SPARK: dict[str, t.Any] = {"ansible_host": "192.168.1.31", "ansible_user": "nv", "ansible_port": 2222}


def built(**hosts: t.Any) -> export.SshConfig:
    return export.build_ssh_config(hosts, "lab", BASE)


def settings(folder: pathlib.Path, made: export.SshConfig, alias: str) -> dict[str, list[str]]:
    path = folder / "export"
    path.write_text(made.text)
    path.chmod(0o600)
    return client.parse_settings(client.run_ssh("ssh", ["-F", str(path), alias]))


def test_ssh_reads_what_ansible_uses(tmp_path: pathlib.Path) -> None:
    more = {
        "ansible_ssh_private_key_file": "keys/spark one",
        "ansible_ssh_common_args": "-J me@j:22022 -A -o UserKnownHostsFile=/kh -o 'HostKeyAlias k' -oControlMaster=auto",
        "ansible_ssh_extra_args": "-i /second -4",
    }
    made = built(spark={**SPARK, **more})
    found = settings(tmp_path, made, "muster-lab-spark")
    assert (found["hostname"], found["user"], found["port"]) == (["192.168.1.31"], ["nv"], ["2222"])
    assert found["identityfile"] == ["/base/keys/spark one", "/second"] and found["proxyjump"] == ["me@j:22022"]
    assert found["userknownhostsfile"] == ["/kh"] and found["hostkeyalias"] == ["k"]
    assert found["forwardagent"] == ["yes"] and found["addressfamily"] == ["inet"]
    assert "ControlMaster" not in made.text and made.notes == ()


@pytest.mark.parametrize("name", CONFIGS)
def test_import_and_export_are_one_machine(tmp_path: pathlib.Path, name: str) -> None:
    path = write(tmp_path, CONFIGS[name][0])
    listed = client.list_hosts(str(path))
    hosts = {}
    for host in map(mapping.to_host, listed):
        assert host.direct
        address, port, user = host.direct
        hosts[host.name] = {"ansible_host": address, "ansible_port": port, **host.data}
        hosts[host.name].update({"ansible_user": user} if user else {})
    made = export.build_ssh_config(hosts, "lab", BASE)
    for name, alias in made.aliases.items():
        ours, theirs = settings(tmp_path, made, alias), settings_of(path, name)
        for keyword in ("hostname", "port", "user", "proxyjump"):
            assert ours.get(keyword) == theirs.get(keyword), keyword
        assert next(iter(theirs["identityfile"])).replace("%n", name) in ours["identityfile"]


def settings_of(path: pathlib.Path, name: str) -> dict[str, list[str]]:
    return client.parse_settings(client.run_ssh("ssh", ["-F", str(path), name]))


def test_passwords_are_not_in_it() -> None:
    made = built(a={**SPARK, "ansible_password": "hunter22", "ansible_become_password": "hunter23"})
    assert "hunter" not in repr(made)
    assert made.notes == ("a: its password is not exported; ssh asks for it. Use a key (ssh-copy-id)",)


def test_a_host_without_ssh_is_left_out_and_said() -> None:
    made = built(a=SPARK, local={"ansible_connection": "local"})
    assert list(made.aliases) == ["a"] and made.notes == ("local: left out, its connection is local and not SSH",)


def test_a_host_without_an_address_is_its_name(tmp_path: pathlib.Path) -> None:
    assert settings(tmp_path, built(gpu={}), "muster-lab-gpu")["hostname"] == ["gpu"]
    zone = built(gpu={"ansible_host": "fe80::1%enp1s0"})
    assert settings(tmp_path, zone, "muster-lab-gpu")["hostname"] == ["fe80::1%enp1s0"]


REFUSED: dict[str, tuple[dict[str, t.Any], str]] = {
    "address": (
        {"ansible_host": "-oProxyCommand=x"},
        "a.ansible_host: '-oProxyCommand=x' is neither a name nor an address",
    ),
    "lines": ({"ansible_host": "x\nProxyCommand id"}, "is neither a name nor an address"),
    "port": ({"ansible_port": 70000}, "a.ansible_port: 70000 is not a port. Correct the inventory: 1 to 65535"),
    "user": ({"ansible_user": "x\nProxyCommand id"}, "a: User: its value has a quote or a character"),
    "key": ({"ansible_ssh_private_key_file": 'a"b'}, "a: IdentityFile: its value has a quote"),
    "quote": ({"ansible_ssh_common_args": "-o 'x"}, "a.ansible_ssh_common_args: has a quote that does not end"),
    "flag": ({"ansible_ssh_common_args": "-L 1:x:1"}, "'-L' has no line in ssh_config. Write it as -o Keyword=value"),
    "option": ({"ansible_ssh_extra_args": "-o x"}, "a.ansible_ssh_extra_args: '-o x' is not Keyword=value"),
    "no option": ({"ansible_ssh_extra_args": "-o"}, "'-o' has no line in ssh_config"),
    "word": ({"ansible_ssh_extra_args": "jump"}, "'jump' has no line in ssh_config"),
    "sshpass": ({"ansible_ssh_common_args": "-o ProxyCommand='sshpass -p hunter22 x'"}, "ProxyCommand has a password"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_host_is_refused_in_one_line(name: str) -> None:
    more, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        built(a={**SPARK, **more})
    assert words in str(caught.value) and "hunter22" not in str(caught.value)


def test_an_inventory_without_hosts() -> None:
    with pytest.raises(InputError, match="hosts: no host is reached by SSH"):
        built()
