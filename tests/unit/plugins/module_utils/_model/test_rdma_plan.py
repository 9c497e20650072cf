# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions on RDMA that no recorded host has; the others are in test_device_plans."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices
from ansible_collections.muster.training.tests.support.device_hosts import BARE

PORT: t.Final[dict[str, t.Any]] = {
    "name": "mlx5_0",
    "port": 1,
    "vendor": "15b3",
    "link_layer": "ethernet",
    "state": "active",
    "rate_gbps": 100.0,
    "netdev": "eth0",
    "mtu": 9000,
    "gid_types": ["roce_v2"],
    "pci": None,
}


def plan(*ports: dict[str, t.Any], rdma: t.Any = None, **options: t.Any) -> t.Any:
    facts = {**BARE, "gpus": [], "rdma": {"ports": list(ports), **(rdma or {})}}
    return plan_devices("x", facts, {"rdma": options}).rdma


def test_an_excluded_interface_is_not_given_to_jobs() -> None:
    found = plan(PORT, {**PORT, "name": "mlx5_1", "netdev": "eth1"}, exclude=["eth1"])
    assert [(item.name, item.used, item.reason) for item in found.hcas] == [
        ("mlx5_0", True, ""),
        ("mlx5_1", False, "left out by rdma_exclude"),
    ]
    assert found.nccl_ib_hca == "=mlx5_0"


def test_limits_of_services_are_raised_where_they_are_low() -> None:
    found = plan(PORT, rdma={"memlock": {"k3s": 8 << 20, "containerd": "unlimited"}})
    assert found.memlock == ("k3s",) and found.reload


def test_a_port_without_a_roce_gid_is_told() -> None:
    assert any("no GID of RoCE v2" in line for line in plan({**PORT, "gid_types": ["roce_v1"]}).warnings)
