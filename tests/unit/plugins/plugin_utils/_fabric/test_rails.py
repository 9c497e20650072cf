# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA ports of a node that carry collectives."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.rails import find_rails


def port(name: str, rate: float | None, **facts: t.Any) -> dict[str, t.Any]:
    return {"name": name, "rdma": True, "link_layer": "infiniband", "rate_gbps": rate, "state": "active", **facts}


def node(*ports: dict[str, t.Any]) -> Node:
    return Node.from_dict({"name": "a", "nics": list(ports)})


def test_the_kind_with_the_most_bandwidth_in_total_is_chosen() -> None:
    rails = find_rails(node(port("mlx5_0", 400), port("mlx5_1", 400), port("mlx5_9", 200, link_layer="ethernet")))
    assert rails is not None and [nic.name for nic in rails.nics] == ["mlx5_0", "mlx5_1"]
    assert (rails.link, rails.rate_gbps, rails.count) == ("ib", 400, 2) and rails.describe() == "2 x 400 Gb/s ib"
    many = find_rails(node(port("mlx5_0", 400), *(port(f"roce{i}", 100, link_layer="ethernet") for i in range(8))))
    assert many is not None and many.describe() == "8 x 100 Gb/s roce"


def test_ports_that_are_down_or_without_rdma_do_not_count() -> None:
    assert find_rails(node(port("mlx5_0", 400, state="down"), port("eth0", 100, rdma=False))) is None


def test_an_unknown_rate_is_described_as_such() -> None:
    rails = find_rails(node(port("mlx5_0", None)))
    assert rails is not None and rails.describe() == "1 x unknown rate ib"
