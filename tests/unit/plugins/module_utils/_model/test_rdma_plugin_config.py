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
from ansible_collections.muster.training.plugins.module_utils._model.rdma_plugin_config import build_entry, check_config
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


@pytest.fixture
def judge(tmp_path: pathlib.Path) -> t.Callable[[str], str]:
    """The real plugin, which says what it thinks of a configuration; it ends then, where the kernel has no RDMA."""
    archive = pathlib.Path(os.environ.get("MUSTER_LAB_BIN") or "/nonexistent") / "k8s-rdma-shared-dp.xz"
    if not archive.exists():
        pytest.skip("MUSTER_LAB_BIN has no k8s-rdma-shared-dp.xz")
    program = tmp_path / "plugin"
    program.write_bytes(lzma.decompress(archive.read_bytes()))
    program.chmod(0o755)

    def run(config: str) -> str:
        place = tmp_path / "config.json"
        place.write_text(config)
        words = [str(program), "-config-file", str(place)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout + done.stderr

    return run


def test_the_real_plugin_takes_every_entry_of_the_recorded_hosts_and_drops_no_selector(
    judge: t.Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    entries = recorded_entries(tmp_path / "hosts")
    assert len(entries) >= 4
    for found in entries.values():
        config = json.dumps({"configList": [found["entry"]]})
        said = judge(config)
        assert TAKEN in said and "invalid" not in said, (found["host"], said)
        assert check_config(config) == "", found["host"]
        for values in found["entry"]["selectors"].values():
            assert f"[{' '.join(values)}]" in said, (found["host"], said)


# After its configuration is validated.
TAKEN = "can not get RDMA subsystem network namespace mode"
GOOD = {"resourceName": "roce", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"]}}
# (entries, words of our refusal, words of the plugin's, empty where it drops it without a word or offers nothing)
BAD: list[tuple[t.Any, str, str]] = [
    ([{**GOOD, "resourceName": "ro-ce"}], "may have letters, digits and _ only", "contains invalid characters"),
    ([{**GOOD, "selectors": {}}], "has neither selectors nor devices", 'neither "selectors" nor "devices"'),
    ([{**GOOD, "selectors": {"vendor": ["15b3"]}}], "has no selector vendor", 'neither "selectors" nor "devices"'),
    ([{**GOOD, "rdmaHcaMax": -1}], "must be a number of pods", "Invalid value for rdmaHcaMax"),
    ([GOOD, GOOD], "two entries are named roce", "already exists"),
    ([], "its configList has no entry", "no resources configuration found"),
    ([{key: GOOD[key] for key in ("resourceName", "selectors")}], "must be a number of pods", ""),
    ([{**GOOD, "selectors": {"vendors": ["15b3"], "ifname": ["eth0"]}}], "has no selector ifname", ""),
]


@pytest.mark.parametrize(("entries", "ours", "theirs"), BAD, ids=[row[1] for row in BAD])
def test_what_the_real_plugin_refuses_or_drops_is_refused_before(
    judge: t.Callable[[str], str], entries: t.Any, ours: str, theirs: str
) -> None:
    config = json.dumps({"configList": entries})
    assert ours in check_config(config)
    assert (theirs or TAKEN) in judge(config)
    assert check_config(json.dumps({"configList": [GOOD]})) == ""


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"configList": "roce"}', '{"configList": [1]}'])
def test_text_that_is_no_configuration_is_refused(text: str) -> None:
    assert check_config(text)
