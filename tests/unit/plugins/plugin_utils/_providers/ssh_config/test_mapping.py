# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records and connection variables of what ssh resolved; with real files in ``test_client``."""

from __future__ import annotations

import shlex
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._providers.ssh_config import mapping

USUAL: dict[str, t.Any] = {"hostname": ["x"], "user": ["me"], "port": ["22"], "identityfile": ["~/.ssh/id_rsa"]}


def item(otherwise: dict[str, t.Any] | None = None, file: str = "", **settings: list[str]) -> dict[str, t.Any]:
    mine = {**USUAL, "hostname": ["192.168.1.31"], **settings}
    return {"alias": "a", "aliases": ["a"], "settings": mine, "otherwise": [USUAL, otherwise or USUAL], "file": file}


def test_what_ssh_does_by_itself_is_not_said_again() -> None:
    data = mapping.to_host(item()).data
    assert not {"ansible_ssh_common_args", "ansible_ssh_private_key_file"} & set(data)
    assert mapping.to_host(item()).direct == ("192.168.1.31", 22, None)


def test_what_the_address_alone_would_get_is_overruled() -> None:
    other = {**USUAL, "user": ["you"], "proxyjump": ["j"], "identityfile": ["/other"]}
    host = mapping.to_host(item(other))
    assert host.direct and host.direct[2] == "me"
    assert host.data["ansible_ssh_private_key_file"] == "~/.ssh/id_rsa"
    assert shlex.split(str(host.data["ansible_ssh_common_args"])) == ["-o", "ProxyJump=none"]


def test_marks_of_the_name_are_replaced() -> None:
    host = mapping.to_host(item(identityfile=["/k_%n", "/k_%k_%r"], hostkeyalias=["z"]))
    assert host.data["ssh_config_identity_files"] == ["/k_a", "/k_z_%r"]


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_a_port_that_ssh_would_not_print(port: str) -> None:
    with pytest.raises(InputError, match=f"Host a: Port {port} is not a port"):
        mapping.to_host(item(port=[port]))
