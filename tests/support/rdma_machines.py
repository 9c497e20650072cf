# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines with HCAs as ``node_device_info`` describes them: facts, and the plan that the product makes of them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import plan_devices

MODULES = ("ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad")


def port(name: str, **changes: t.Any) -> dict[str, t.Any]:
    """Return a port of a ConnectX-7 that is up: RoCE, or as the changes say."""
    return {
        "name": name,
        "port": 1,
        "vendor": "15b3",
        "device": "1021",
        "driver": "mlx5_core",
        "link_layer": "ethernet",
        "state": "active",
        "rate_gbps": 400.0,
        "mtu": 9000,
        "gid_types": ["roce_v2"],
        **changes,
    }


def describe(
    name: str, ports: t.Sequence[t.Mapping[str, t.Any]], rdma: t.Mapping[str, t.Any] | None = None, **facts: t.Any
) -> dict[str, t.Any]:
    """Return facts and plan of a machine with these ports, through JSON's types; ``rdma``: options of the role."""
    listed = {"ports": [dict(item) for item in ports], "modules": list(MODULES), "memlock": {}, **facts}
    known = {"os": {"id": "ubuntu", "version": "24.04"}, "packages": {"manager": "apt", "versions": {}}, "rdma": listed}
    options = {"rdma": {"source": "none", "sharing": not facts.get("netns_exclusive"), **(rdma or {})}}
    return {"facts": known, "rdma": dataclasses.asdict(plan_devices(name, known, options).rdma)}
