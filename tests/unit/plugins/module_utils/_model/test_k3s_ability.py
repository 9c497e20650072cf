# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether K3s can run on a machine, and every reason why not."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.k3s_ability import k3s_reasons

WHOLE = {
    "container": "none",
    "systemd": "1",
    "cap_eff": "000001ffffffffff",
    "kmsg": "1",
    "tun": "1",
    "cgroup_rw": "1",
}


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, ()),
        ({"container": "podman"}, ()),
        ({"systemd": "0"}, ("systemd is not running",)),
        ({"cap_eff": "00000000a80425fb"}, ("lacks CAP_SYS_ADMIN or CAP_NET_ADMIN",)),
        ({"cap_eff": "unknown"}, ("lacks CAP_SYS_ADMIN or CAP_NET_ADMIN",)),
        ({"kmsg": "0"}, ("has no /dev/kmsg",)),
        ({"tun": "0"}, ("has no /dev/net/tun",)),
        ({"cgroup_rw": "0"}, ("has a read-only cgroup tree",)),
        ({"container": "docker", "kmsg": "0"}, ("is a docker container", "has no /dev/kmsg")),
    ],
)
def test_each_reason_is_named(changes: dict[str, str], reasons: tuple[str, ...]) -> None:
    assert k3s_reasons({**WHOLE, **changes}) == reasons


def test_of_a_machine_of_which_nothing_is_known_nothing_is_promised() -> None:
    assert len(k3s_reasons({})) == 5
