# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node_info action asks the host of its task."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.action import node_info


def test_the_host_of_the_task_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_info.ActionModule, "connect", lambda _self, _variables: lambda names: [f"to {names[0]}"])
    monkeypatch.setattr(node_info.node_info, "gather_node_info", lambda *values: {"values": values})
    action = node_info.ActionModule.__new__(node_info.ActionModule)
    options = {"python": "python3", "packages": ["torch"], "facts": False}
    own = {"ansible_host": "192.0.2.1"}
    others = {name: {"muster_node": {"addresses": {"mesh": f"100.64.0.{name[-1]}"}}} for name in ("gpu-2", "gpu-3")}
    variables = {
        "inventory_hostname": "gpu-1",
        "hostvars": {"gpu-1": own, **others, "gpu-4": {}},
        "ansible_play_hosts_all": ["gpu-1", "gpu-2", "gpu-3", "gpu-4"],
    }
    result = action.work(options, variables)
    # With the other hosts by their mesh addresses, or by name, to which the path is wanted.
    peers = ["100.64.0.2", "100.64.0.3", "gpu-4"]
    assert result == {"values": ("to gpu-1", own, "python3", ["torch"], False, peers)}
