# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded hosts, from their files to the decision: driver, container runtime and RDMA."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import device_plans
from ansible_collections.muster.training.plugins.module_utils._node import facts_devices
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource
from ansible_collections.muster.training.tests.support import device_hosts

HOSTS = device_hosts.load_hosts()
# Each row of the two tables of the guide, and the recorded host that has it.
ROWS = {
    "DGX OS": "dgx-os-install-asked",
    "DGX Spark": "dgx-spark-works",
    "a driver works": "all-there",
    "an old driver, an upgrade asked for": "old-driver-upgrade-drained",
    "an old driver": "old-driver-not-asked",
    "module and libraries of two versions": "reported-t4-mismatch-after-unattended-upgrade",
    "Ubuntu, Secure Boot": "ubuntu24-h100-bare-secure-boot",
    "Ubuntu, Pascal": "ubuntu22-p40-archive",
    "Ubuntu by NVIDIA's repository": "ubuntu24-l40s-cuda-asked",
    "Ubuntu by NVIDIA's repository, Secure Boot": "ubuntu24-cuda-secure-boot",
    "Debian": "debian13-5090",
    "Debian, Pascal": "debian12-p100",
    "Debian, Secure Boot": "reported-l4-gce-debian12-secure-boot",
    "RHEL family 8, 9": "rocky9-h200",
    "RHEL family 8, Volta": "rocky8-v100",
    "RHEL family 10": "rhel10-bare-l40s",
    "RHEL family, Secure Boot": "rocky9-secure-boot",
    "virtual machine, Secure Boot": "debian12-vm-secure-boot",
    "virtual machine": "debian12-vm-nouveau",
    "container": "rented-container",
    "WSL": "wsl2-rtx4090",
    "Jetson": "reported-jetson-orin-k3s",
    "HGX H200": "reported-hgx-h200-fabric-manager-of-another-version",
    "HGX B200": "hgx-b200-bare",
    "GB200": "gb200-compute-tray-bare",
    "vGPU": "vgpu-guest-a16",
    "MIG": "reported-rtxpro6000-mig-toolkit-1.16.1",
    "nouveau": "reported-rtx2080ti-nouveau-debian13",
    "vfio": "reported-t4-vfio-kubevirt",
    "no RDMA": "no-hca",
    "InfiniBand": "hgx-h100-ib",
    "RoCE": "bare-roce",
    "virtual functions": "roce-with-virtual-functions",
    "EFA": "efa",
    "Spark's two halves": "reported-dgx-spark-one-cable",
    "switch management": "reported-hgx-b200-switch-management-hcas",
    "a virtual function alone": "rented-vm-with-a-virtual-function-alone",
    "half configured": "ib-init-without-sm",
    "DOCA over another OFED": "reported-l4-ubuntu26-doca-over-metapackage",
    "DOCA while nvidia_peermem is in use": "doca-peermem-in-use",
    "exclusive namespaces": "exclusive-netns",
    "ACS and IOMMU told": "acs-and-iommu-told",
    "ACS and IOMMU asked for": "acs-and-iommu-asked",
    "ACS in a virtual machine": "acs-asked-in-a-vm",
}


def test_there_are_sixty_recorded_hosts_and_each_says_where_it_is_from() -> None:
    assert len(HOSTS) >= 60
    assert len({host["name"] for host in HOSTS}) == len(HOSTS)
    assert all(host["source"] and host["expect"] for host in HOSTS)


def test_each_row_of_both_tables_has_a_recorded_host_and_half_are_from_public_reports() -> None:
    names = {host["name"] for host in HOSTS}
    assert [row for row, name in ROWS.items() if name not in names] == []
    assert len([name for name in names if name.startswith("reported-")]) >= 30


@pytest.mark.parametrize("host", HOSTS, ids=[host["name"] for host in HOSTS])
def test_recorded_host(host: device_hosts.Host, tmp_path: pathlib.Path) -> None:
    facts = facts_devices.read_devices(FactsSource(device_hosts.write_host(tmp_path, host)))
    # What travels is JSON.
    facts = json.loads(json.dumps(facts))
    plans = device_plans.plan_devices(host["name"], facts, host.get("options", {}))
    for role, expected in host["expect"].items():
        plan = dataclasses.asdict(getattr(plans, role))
        for key, value in expected.items():
            if key == "says":
                said = " | ".join(_texts(plan))
                for text in [value] if isinstance(value, str) else value:
                    assert text in said, f"{role}: {text!r} is not in {said!r}"
            elif key == "hcas":
                used = [item["name"] for item in plan["hcas"] if item["used"]]
                assert sorted(used) == sorted(value), f"{role}.hcas: {plan['hcas']}"
            elif key == "lacks":
                listed = [*plan["before"], *plan["packages"], *plan["units"]]
                assert not set(value) & set(listed), f"{role}: {listed}"
            elif isinstance(value, list):
                missing = [item for item in value if item not in _names(plan[key])]
                assert not missing, f"{role}.{key}: {missing} are not in {plan[key]}"
            else:
                assert plan[key] == value, f"{role}.{key} is {plan[key]!r}; {plan['reason']}"


def _texts(plan: t.Mapping[str, t.Any]) -> list[str]:
    refusals = [f"{item['problem']}. {item['fix']}" for item in plan["refusals"]]
    hcas = [f"{item['name']}: {item['reason']}" for item in plan.get("hcas", ())]
    return [plan["reason"], *refusals, *plan["warnings"], *hcas]


def _names(values: t.Iterable[t.Any]) -> list[t.Any]:
    """Return values, a repository by its URL."""
    return [item["url"] if isinstance(item, dict) else item for item in values]


def test_a_tool_that_answers_nonsense_is_no_error(tmp_path: pathlib.Path) -> None:
    host = {"os": "ubuntu24", "tools": {"nvidia-smi": "\0\xff", "rdma": "?", "mokutil": {"rc": 77}}, "packages": {}}
    facts = facts_devices.read_devices(FactsSource(device_hosts.write_host(tmp_path, host)))
    assert facts["driver"]["listed"] == 0
    assert device_plans.plan_devices("x", facts, {}).gpu_driver.action == "none"


def test_an_empty_machine_is_decided(tmp_path: pathlib.Path) -> None:
    facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
    plans = device_plans.plan_devices("x", facts, {})
    assert [plans.gpu_driver.action, plans.container_runtime.action, plans.rdma.action] == ["none", "none", "none"]
