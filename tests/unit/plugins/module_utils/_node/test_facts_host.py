# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of the machine: processors and the mesh's daemon."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_host,
)


@pytest.mark.parametrize(("text", "count"), [("0-3,8", 5), ("0", 1), ("", None), ("0-x", None), (None, None)])
def test_cpu_list(text: str | None, count: int | None) -> None:
    assert facts_host.count_cpus(text) == count


def test_tailscale_paths() -> None:
    peers = {
        "a": {"TailscaleIPs": ["100.64.0.1"], "CurAddr": "1.2.3.4:41641", "Active": True},
        "b": {"TailscaleIPs": ["100.64.0.2"], "CurAddr": "", "Active": True, "Relay": "fra"},
        "c": {"TailscaleIPs": None},
    }
    found = facts_host.parse_tailscale(json.dumps({"BackendState": "Running", "Peer": peers}))
    assert found == {"state": "Running", "peers": {"100.64.0.1": "direct", "100.64.0.2": "relayed"}}
    assert facts_host.mesh_path({"direct", "relayed"}) == "relayed"
    assert facts_host.mesh_path({"idle"}) is None
