# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of the RDMA device plugin's configuration: by kind and by what must be left out, judged by the real plugin."""

from __future__ import annotations

import json
import lzma
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices
from ansible_collections.muster.training.plugins.module_utils._model.rdma_plugin_config import build_entry
from ansible_collections.muster.training.plugins.module_utils._node import host_agent
from ansible_collections.muster.training.tests.support import device_hosts

Dict = dict[str, t.Any]
IB: Dict = {
    "name": "mlx5_0",
    "port": 1,
    "vendor": "15b3",
    "device": "1021",
    "driver": "mlx5_core",
    "link_layer": "infiniband",
}
IPOIB = {**IB, "netdev": "ib0"}
ROCE = {**IB, "name": "mlx5_1", "link_layer": "ethernet", "netdev": "eth1"}


@pytest.mark.parametrize(
    ("kind", "ports", "used", "selectors", "warned"),
    [
        ("infiniband", [IB], ["mlx5_0"], {"drivers": ["mlx5_core"]}, ""),
        ("infiniband", [IPOIB], ["mlx5_0"], {"drivers": ["mlx5_core"], "linkTypes": ["infiniband"]}, ""),
        ("roce", [ROCE], ["mlx5_1"], {"drivers": ["mlx5_core"], "linkTypes": ["ether"]}, ""),
        ("roce", [{**ROCE, "driver": None}], ["mlx5_1"], {"linkTypes": ["ether"]}, ""),
        # Storage beside it: told apart by the kind of link, by the device, by the interface, or not at all.
        ("infiniband", [IPOIB, ROCE], ["mlx5_0"], {"drivers": ["mlx5_core"], "linkTypes": ["infiniband"]}, ""),
        (
            "infiniband",
            [IB, {**ROCE, "device": "1019"}],
            ["mlx5_0"],
            {"drivers": ["mlx5_core"], "deviceIDs": ["1021"]},
            "",
        ),
        (
            "roce",
            [ROCE, {**ROCE, "name": "mlx5_2", "netdev": "eth2"}],
            ["mlx5_1"],
            {"drivers": ["mlx5_core"], "linkTypes": ["ether"], "deviceIDs": ["1021"], "ifNames": ["eth1"]},
            "",
        ),
        ("infiniband", [IB, ROCE], ["mlx5_0"], {"drivers": ["mlx5_core"], "deviceIDs": ["1021"]}, "mlx5_1"),
    ],
)
def test_ports_of_jobs_are_chosen_and_others_left_out(
    kind: str, ports: list[Dict], used: list[str], selectors: Dict, warned: str
) -> None:
    found = build_entry(kind, ports, {(name, 1) for name in used})
    name = "ib" if kind == "infiniband" else "roce"
    assert found.entry == {"resourceName": name, "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"], **selectors}}
    assert (warned in found.warning) if warned else found.warning == ""


@pytest.mark.parametrize(
    ("kind", "ports", "used"),
    [("efa", [ROCE], ["mlx5_1"]), ("roce", [ROCE], []), ("roce", [{**ROCE, "vendor": None}], ["mlx5_1"])],
)
def test_without_an_hca_for_jobs_there_is_no_entry(kind: str, ports: list[Dict], used: list[str]) -> None:
    assert build_entry(kind, ports, {(name, 1) for name in used}).entry is None


def recorded_entries(root: pathlib.Path) -> dict[str, Dict]:
    """Return the distinct entries of all recorded hosts, with the name of a host that has each."""
    found = {}
    for host in device_hosts.load_hosts():
        tree = device_hosts.write_host(root / host["name"], host)
        facts = host_agent.answer_request({"op": "devices", **tree})
        entry = plan_devices(host["name"], facts, host.get("options") or {}).rdma.plugin_entry
        if entry:
            found[json.dumps(entry, sort_keys=True)] = {"host": host["name"], "entry": dict(entry)}
    return found


def test_the_real_plugin_takes_every_entry_of_the_recorded_hosts_and_drops_no_selector(tmp_path: pathlib.Path) -> None:
    """It ends after it has validated its configuration, where the kernel has no RDMA."""
    archive = pathlib.Path(os.environ.get("MUSTER_LAB_BIN") or "/nonexistent") / "k8s-rdma-shared-dp.xz"
    if not archive.exists():
        pytest.skip("MUSTER_LAB_BIN has no k8s-rdma-shared-dp.xz")
    program = tmp_path / "plugin"
    program.write_bytes(lzma.decompress(archive.read_bytes()))
    program.chmod(0o755)

    def judge(entry: Dict) -> str:
        place = tmp_path / "config.json"
        place.write_text(json.dumps({"configList": [entry]}))
        words = [str(program), "-config-file", str(place)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout + done.stderr

    entries = recorded_entries(tmp_path / "hosts")
    assert len(entries) >= 4
    for found in entries.values():
        said = judge(found["entry"])
        assert "loaded config" in said and "invalid" not in said and "neither" not in said, (found["host"], said)
        for values in found["entry"]["selectors"].values():
            assert f"[{' '.join(values)}]" in said, (found["host"], said)
    wrong = judge({"resourceName": "ro-ce", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"]}})
    assert "contains invalid characters" in wrong, "the judge judges"
