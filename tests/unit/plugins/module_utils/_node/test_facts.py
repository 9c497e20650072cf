# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gather() on fixture trees of real hardware shapes, and on trees in which things vanish, hang or are unknown."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._node import facts as facts_module
from ansible_collections.muster.training.plugins.module_utils._node.facts import gather_facts
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node import node_trees

Facts = dict[str, t.Any]


BUSES = ("15", "27", "3b", "4d", "97", "a9", "bd", "cf")


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> t.Callable[..., Facts]:
    """Return a function that gathers the facts of a fixture below tmp_path."""

    def read(name: str, **options: t.Any) -> Facts:
        if not (tmp_path / "proc").exists():
            node_trees.expand(name, tmp_path)
        manifest = node_trees.load(name)
        base = {"root": str(tmp_path), "path": [str(tmp_path / "tools"), "/bin"], "addresses": manifest["addresses"]}
        return gather_facts({**base, **options})

    return read


@pytest.mark.parametrize("name", node_trees.NAMES)
def test_every_fixture_gives_json_that_the_node_record_reads(name: str, tree: t.Callable[..., Facts]) -> None:
    facts = tree(name)
    node = Node.from_dict({"name": name, **json.loads(json.dumps(facts))})
    assert node.boot_id == facts["boot_id"] is not None
    assert Node.from_dict(node.to_dict()) == node


def test_hgx_h100(tree: t.Callable[..., Facts]) -> None:
    facts = tree("hgx_h100_ib", peers=["10.20.0.12", "10.10.0.12"])
    ports = [nic for nic in facts["nics"] if nic["rdma"]]
    assert [nic["name"] for nic in ports] == [f"mlx5_{index}" for index in range(8)]
    first = ports[0]
    assert (first["link_layer"], first["state"], first["rate_gbps"]) == ("infiniband", "active", 400)
    assert (first["pci_gen"], first["pci_width"], first["numa"], first["gpu_distance"]) == (5, 16, 0, "PIX")
    assert len(first["gids"]) == 1
    assert first["subnet"] == "fe80:0000:0000:0007" and first["gid_types"] == ["ib"]
    assert (first["netdev"], first["mtu"]) == ("ibp24s0", 4092)
    assert [nic["name"] for nic in facts["nics"] if not nic["rdma"]] == ["eno1"]
    gpu = facts["gpu"]
    assert (gpu["model"], gpu["count"], gpu["arch"], gpu["memory_gib"]) == ("NVIDIA H100 80GB HBM3", 8, "hopper", 79.6)
    assert (gpu["pci_gen"], gpu["pci_width"], gpu["nvswitch"], gpu["fabric_id"]) == (5, 16, True, None)
    assert facts["driver"] == {"version": "570.86.15", "flavour": "open", "loaded": True, "nouveau": False}
    assert facts["nvlink_fabric"]["manager"] == {"running": True, "version": "570.86.15"}
    assert facts["nvlink_fabric"]["state"] == "Completed"
    assert facts["gpudirect"] == {"supported": True, "peermem": True, "dmabuf": True, "reason": None}
    assert facts["limits"]["memlock"] == "unlimited" and facts["limits"]["nofile"] == 1024
    assert facts["limits"]["units"]["k3s"] == {"memlock": 8388608, "running": True}
    assert facts["limits"]["shm_gib"] > 0
    assert facts["virtualisation"] == {"kind": "baremetal", "technology": None}
    assert facts["acs"]["enabled_on"] == sorted(f"0000:{bus}:01.0" for bus in BUSES)
    assert facts["iommu"] == {"enabled": True, "mode": "passthrough"}
    assert facts["interface_for"] == {"10.20.0.12": "ibp24s0", "10.10.0.12": "eno1"}
    assert (facts["platform"], facts["systemd"], facts["mesh_path"]) == ("hgx", "running", "none")
    assert facts["network_types"] == ["lan"] and facts["problems"] == []


def test_dgx_spark_has_two_functions_a_port_and_no_gpudirect(tree: t.Callable[..., Facts]) -> None:
    facts = tree("dgx_spark", peers=["192.168.100.32", "100.101.1.32"])
    ports = {nic["name"]: nic for nic in facts["nics"] if nic["rdma"]}
    assert [name for name, nic in ports.items() if nic["state"] == "active"] == ["roceP2p1s0f1", "rocep1s0f1"]
    half = ports["rocep1s0f1"]
    assert (half["rate_gbps"], half["pci"], half["pci_gen"], half["pci_width"]) == (200, "0000:01:00.1", 5, 4)
    assert half["gid_types"] == ["roce_v1", "roce_v2"] and half["mtu"] == 9000
    assert half["netdev"] == "enp1s0f1np1" and half["subnet"] is None
    gpu = facts["gpu"]
    assert (gpu["model"], gpu["arch"], gpu["unified_memory"], gpu["nvswitch"]) == (
        "NVIDIA GB10",
        "blackwell",
        True,
        False,
    )
    assert gpu["memory_gib"] == facts["memory_gib"] == 119.7
    assert facts["gpudirect"]["supported"] is False and "GB10" in facts["gpudirect"]["reason"]
    assert (facts["platform"], facts["dgx_os"], facts["cpu"]["arch"]) == ("dgx_spark", True, "aarch64")
    assert facts["mesh_path"] == "direct" and facts["tailscale"]["userspace"] is False
    assert facts["interface_for"] == {"192.168.100.32": "enp1s0f1np1", "100.101.1.32": "tailscale0"}
    assert facts["addresses"]["mesh"] == [{"address": "100.101.1.31", "interface": "tailscale0", "prefix": 32}]


def test_a100_roce_reports_a_narrow_slot_a_lost_gpu_and_a_bond(tree: t.Callable[..., Facts]) -> None:
    facts = tree("a100_roce")
    assert "nics/mlx5_3: PCIe runs at gen 4 x8, the device can do gen 4 x16" in facts["problems"]
    lost = [item for item in facts["problems"] if item.startswith("gpu: 8 GPUs are on the PCI bus, nvidia-smi lists 7")]
    assert len(lost) == 1 and re.search(r": not [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0$", lost[0])
    assert facts["gpudirect"]["supported"] is False and facts["driver"]["flavour"] == "proprietary"
    assert facts["nvlink_fabric"]["manager"] == {"running": False, "version": None}
    assert facts["nvlink_fabric"]["state"] is None
    assert facts["iommu"]["mode"] == "translated"
    assert facts["limits"]["units"]["k3s-agent"] == {"memlock": "unlimited", "running": False}
    bond = next(item for item in facts["interfaces"] if item["name"] == "bond0")
    assert (bond["kind"], bond["speed_gbps"], bond["members"]) == ("bond", 50, ["eno0", "eno1"])
    # The eighth NIC sat beside the GPU that is lost.
    assert [nic["gpu_distance"] for nic in facts["nics"] if nic["rdma"]] == ["PHB"] * 7 + ["NODE"]


def test_virtual_machine_with_one_gpu_behind_a_relay(tree: t.Callable[..., Facts]) -> None:
    facts = tree("lambda_1gpu_vm", peers=["100.99.2.8"])
    assert facts["virtualisation"] == {"kind": "vm", "technology": "kvm"}
    assert facts["mesh_path"] == "relayed" and facts["tailscale"]["peers"] == {"100.99.2.8": "relayed"}
    assert facts["interface_for"] == {"100.99.2.8": "tailscale0"}
    nic = facts["nics"][0]
    assert (nic["name"], nic["rdma"], nic["rate_gbps"], nic["pci"]) == ("eno1", False, None, "0000:00:03.0")
    assert facts["problems"] == ["nics/eno1: rate is unknown"]
    assert facts["gpudirect"]["supported"] is True and facts["gpu"]["nvswitch"] is False
    assert [item["address"] for item in facts["addresses"]["mesh"]] == ["100.99.2.7", "fd7a:115c:a1e0::7"]


def test_idle_peer_says_nothing_about_the_path(tree: t.Callable[..., Facts]) -> None:
    assert tree("lambda_1gpu_vm", peers=["100.99.2.9"])["mesh_path"] is None


def test_plain_ethernet_takes_the_speed_below_a_bridge(tree: t.Callable[..., Facts]) -> None:
    facts = tree("plain_ethernet", peers=["fd00::9", "10.0.5.4", "192.168.77.1"])
    assert {item["name"]: item["speed_gbps"] for item in facts["interfaces"]} == {
        "cni0": None,
        "eno1": 10.0,
        "eno2": 1.0,
        "vmbr0": 10.0,
    }
    assert [item["address"] for item in facts["addresses"]["lan"]] == ["10.0.5.4", "203.0.113.9"]
    assert [item["address"] for item in facts["addresses"]["public"]] == ["8.8.4.4"]
    assert facts["gpu"]["count"] == 0 and facts["gpu"]["nvswitch"] is None
    assert facts["gpudirect"]["supported"] is None and facts["mesh_path"] == "none"
    assert facts["interface_for"] == {"fd00::9": "vmbr0", "10.0.5.4": "lo", "192.168.77.1": None}
    assert "no route to 192.168.77.1" in facts["problems"]


def test_container_counts_its_own_gpus_and_limits(tree: t.Callable[..., Facts]) -> None:
    facts = tree("container")
    assert facts["virtualisation"] == {"kind": "container", "technology": "docker"}
    assert (facts["gpu"]["count"], facts["gpu"]["model"]) == (2, "NVIDIA GeForce RTX 4090")
    assert (facts["cpu"]["count"], facts["cpu"]["usable"], facts["memory_limit_gib"]) == (64, 8.0, 64.0)
    assert [nic for nic in facts["nics"] if nic["rdma"]] == []
    assert facts["interfaces"][0] | {"mtu": 0} == {
        "name": "eth0",
        "kind": "veth",
        "link_layer": "ethernet",
        "state": "active",
        "mtu": 0,
        "speed_gbps": None,
        "members": [],
        "pci": None,
    }
    assert facts["systemd"] == "absent" and facts["mesh_path"] == "none"
    # Linux 5.4 is too old for DMA-BUF.
    assert facts["gpudirect"]["dmabuf"] is False


def test_container_without_device_nodes_has_no_gpu(tmp_path: pathlib.Path, tree: t.Callable[..., Facts]) -> None:
    node_trees.expand("container", tmp_path)
    for path in (tmp_path / "dev").iterdir():
        path.unlink()
    assert tree("container")["gpu"]["count"] == 0


def test_hanging_nvidia_smi_costs_its_timeout_and_one_line(
    tmp_path: pathlib.Path, tree: t.Callable[..., Facts]
) -> None:
    node_trees.expand("lambda_1gpu_vm", tmp_path)
    (tmp_path / "tools/nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    facts = tree("lambda_1gpu_vm", tool_timeout_s=0.2)
    assert time.monotonic() - start < 5
    assert "nvidia-smi did not answer within 0.2 s" in facts["problems"]
    assert (facts["gpu"]["count"], facts["gpu"]["model"], facts["gpu"]["arch"]) == (1, None, None)
    assert facts["driver"]["version"] == "570.148.08"


def test_failing_tools_are_problems_and_not_errors(tmp_path: pathlib.Path, tree: t.Callable[..., Facts]) -> None:
    node_trees.expand("lambda_1gpu_vm", tmp_path)
    (tmp_path / "tools/nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    (tmp_path / "tools/tailscale").write_text("#!/bin/sh\necho '{\"Peer\": [1]}'\n")
    facts = tree("lambda_1gpu_vm")
    assert "nvidia-smi failed with 6: No devices were found" in facts["problems"]
    assert any(line.startswith("tailscale cannot be read") for line in facts["problems"]) or facts["mesh_path"] is None


@pytest.mark.parametrize(
    ("path", "text", "key", "problem"),
    [
        ("rate", "unknown", "rate_gbps", "nics/mlx5_0: rate is unknown"),
        ("state", None, "state", "nics/mlx5_0: state is unknown"),
        ("link_layer", "Unspecified", "link_layer", "nics/mlx5_0: link layer is Unspecified"),
    ],
)
def test_port_values_that_vanish_or_say_unknown(
    path: str, text: str | None, key: str, problem: str, tmp_path: pathlib.Path, tree: t.Callable[..., Facts]
) -> None:
    node_trees.expand("hgx_h100_ib", tmp_path)
    file = tmp_path / "sys/class/infiniband/mlx5_0/ports/1" / path
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    facts = tree("hgx_h100_ib")
    assert facts["nics"][0][key] is None and problem in facts["problems"]
    assert facts["nics"][1][key] is not None


def test_unknown_pcie_speed_is_null_with_a_problem(tmp_path: pathlib.Path, tree: t.Callable[..., Facts]) -> None:
    node_trees.expand("hgx_h100_ib", tmp_path)
    base = tmp_path / "sys/bus/pci/devices/0002:15:00.0"
    (base / "current_link_speed").write_text("Unknown\n")
    (base / "max_link_width").write_text("255\n")
    facts = tree("hgx_h100_ib")
    assert facts["nics"][0]["pci_gen"] is None and facts["nics"][0]["pci_width_max"] is None
    assert any("PCIe speed or width of 0002:15:00.0 is unknown" in line for line in facts["problems"])


def test_an_empty_machine_gives_every_key_and_no_error(tmp_path: pathlib.Path) -> None:
    full = gather_facts({"root": str(tmp_path), "path": [], "addresses": []})
    assert full["gpu"]["count"] == 0 and full["nics"] == [] and full["boot_id"] is None
    assert Node.from_dict({"name": "empty", **full}).gpu.count == 0


@pytest.mark.parametrize("name", node_trees.NAMES)
def test_binary_rubbish_in_any_file_never_raises(
    name: str, tmp_path: pathlib.Path, tree: t.Callable[..., Facts]
) -> None:
    node_trees.expand(name, tmp_path)
    for part in ("sys/class", "sys/devices", "proc"):
        for path in (tmp_path / part).rglob("*"):
            if path.is_file():
                path.write_bytes(b"\xff\x00-7 \x1b[31m\n" * 3)
    facts = tree(name)
    Node.from_dict({"name": "rubbish", **json.loads(json.dumps(facts))})


def test_a_device_that_vanishes_between_listing_and_reading(
    tmp_path: pathlib.Path, tree: t.Callable[..., Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    node_trees.expand("hgx_h100_ib", tmp_path)
    names = facts_module.FactsSource.names

    def listed(self: t.Any, path: str) -> list[str]:
        found = names(self, path)
        if path.endswith("class/infiniband"):
            shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_7")
        return found

    monkeypatch.setattr(facts_module.FactsSource, "names", listed)
    facts = tree("hgx_h100_ib")
    assert len([nic for nic in facts["nics"] if nic["rdma"]]) == 7
    assert "nics/mlx5_7: the device has no ports" in facts["problems"]


def test_import_and_run_are_quick_and_need_no_third_party_module() -> None:
    code = (
        "import sys, time; start = time.perf_counter()\n"
        "from ansible_collections.muster.training.plugins.module_utils._node.facts import gather_facts\n"
        "facts = gather_facts({'path': []}); took = time.perf_counter() - start\n"
        "assert facts['kernel'] and facts['boot_id'] and facts['python'], facts\n"
        "extra = [name for name in ('ansible', 'subprocess', 'dataclasses') if name in sys.modules]\n"
        "print(took, extra)\n"
    )
    fastest = 9.0
    for _ in range(3):
        done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=_environment())
        assert done.returncode == 0, done.stderr
        took, _, extra = done.stdout.partition(" ")
        assert extra.strip() == "[]"
        fastest = min(fastest, float(took))
    assert fastest < 0.3


def _environment() -> dict[str, str]:
    # The folder that holds ansible_collections, however the collection is linked there.
    package = sys.modules["ansible_collections"].__path__
    return {"PYTHONPATH": str(pathlib.Path(next(iter(package))).parent), "PATH": "/usr/bin:/bin"}
