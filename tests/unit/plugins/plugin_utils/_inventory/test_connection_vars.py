# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Ansible connects to a host: its addresses and host keys."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._inventory import (
    connection_vars,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._inventory.hosts import FULL, make


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (["mesh"], ("100.64.0.1", None, "ubuntu")),
        (["magicdns", "mesh"], ("node.ts.net", None, "ubuntu")),
        (["private"], ("10.0.0.1", None, "ubuntu")),
        (["public"], ("2001:db8::1", None, "ubuntu")),
        (["ssh_direct", "public"], ("203.0.113.4", 22001, "root")),
        ([], None),
    ],
)
def test_ways_to_connect(ways: list[str], expected: tuple[str, int | None, str] | None) -> None:
    assert connection_vars.choose_endpoint(FULL, ways) == expected


def test_ways_that_a_host_does_not_have() -> None:
    assert connection_vars.choose_endpoint(make(), connection_vars.WAYS) is None
    assert connection_vars.choose_endpoint(make(public=("192.0.2.1",)), ["magicdns", "mesh", "public"]) == (
        "192.0.2.1",
        None,
        None,
    )
    own = make(public=("192.0.2.1",), direct=("192.0.2.1", 2222, None))
    assert connection_vars.choose_endpoint(own, ["public"]) == ("192.0.2.1", 2222, None)
    assert (
        connection_vars.choose_endpoint(make(lan=("fe80::1", "::1", "127.0.0.1", "169.254.0.9")), ["private"]) is None
    )


def test_each_machine_has_its_own_host_keys() -> None:
    arguments = connection_vars.key_arguments("/home/a b/keys", "runpod", "pod_1")
    assert arguments == "-o 'UserKnownHostsFile=/home/a b/keys/runpod-pod_1' -o HostKeyAlias=runpod-pod_1"
