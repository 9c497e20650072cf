# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of the machine: processors and the mesh's daemon."""

from __future__ import annotations

import json
import pathlib
import shlex

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_host,
    facts_source,
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
    # A relayed path beside a direct one is the other machine's.
    assert facts_host.mesh_path({"direct", "relayed"}) == "direct" and facts_host.mesh_path({"relayed"}) == "relayed"
    assert facts_host.mesh_path({"idle"}) is None


def test_peers_of_the_mesh_are_found_by_address_and_by_name() -> None:
    peers = {
        "a": {"TailscaleIPs": ["100.64.0.1", "fd7a:115c:a1e0::1"], "DNSName": "gpu-1.mesh.internal.", "Active": True},
        "b": {"TailscaleIPs": ["100.64.0.2"], "HostName": "GPU-2", "CurAddr": "192.0.2.2:41641"},
        "c": {"TailscaleIPs": ["100.64.0.3"], "HostName": "phone", "Active": True},
    }
    text = json.dumps({"Peer": peers})
    by_name = facts_host.parse_tailscale(text, ["gpu-1", "gpu-2"])["peers"]
    assert by_name == {"100.64.0.1": "relayed", "fd7a:115c:a1e0::1": "relayed", "100.64.0.2": "direct"}
    assert list(facts_host.parse_tailscale(text, ["100.64.0.1"])["peers"]) == ["100.64.0.1", "fd7a:115c:a1e0::1"]


PONGS = {
    "100.64.0.2": "pong from b (100.64.0.2) via DERP(lab) in 3ms\npong from b (100.64.0.2) via 192.0.2.2:41641 in 1ms\n",
    "100.64.0.3": "pong from c (100.64.0.3) via DERP(lab) in 3ms\ndirect connection not established\n",
    "100.64.0.4": "pong from d (100.64.0.4) via peer-relay(192.0.2.9:7777:vni:1) in 3ms\n",
    "100.64.0.5": 'ping "100.64.0.5" timed out\n',
}


def test_paths_that_nothing_has_used_are_tried(tmp_path: pathlib.Path) -> None:
    script = "".join(f"  {address}) printf '%s' {shlex.quote(text)}; exit 1;;\n" for address, text in PONGS.items())
    program = tmp_path / "tailscale"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nfor last; do :; done\ncase $last in\n{script}esac\n')
    program.chmod(0o755)
    source = facts_source.FactsSource({"path": [str(tmp_path)]})
    before = {"100.64.0.1": "direct", **dict.fromkeys(PONGS, "idle")}
    found = facts_host.probe_paths(source, before)
    assert found == dict(zip(before, ["direct", "direct", "relayed", "relayed", "idle"], strict=True))
    assert source.problems == []
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 4 and all(line.startswith("ping --c=3 --timeout=1s 100.64.0.") for line in asked)
    # Nobody answers: what traffic has shown stays.
    assert facts_host.probe_paths(source, {"100.64.0.5": "relayed"}) == {"100.64.0.5": "relayed"}
