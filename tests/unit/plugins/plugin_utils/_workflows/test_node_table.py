# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of machines for people: what is known, and a mark where nothing is."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import node_table
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import fixture_node

PORT = {"rdma": True, "link_layer": "infiniband", "rate_gbps": 400, "state": "active"}
H100: dict[str, t.Any] = {
    "name": "gpu-1",
    "cpu": {"count": 208, "arch": "x86_64"},
    "memory_gib": 1771.5,
    "gpu": {"model": "NVIDIA H100 80GB HBM3", "count": 8, "memory_gib": 79.6},
    "nics": [{**PORT, "name": f"mlx5_{index}"} for index in range(8)],
    "mesh_path": "direct",
    "k3s": {"capable": True},
    "price_usd_per_hour": 23.92,
}
HEAD: dict[str, t.Any] = {
    "name": "head",
    "gpu": {"count": 0},
    "nics": [{"name": "eth0", "link_layer": "ethernet", "rate_gbps": 10, "state": "active"}],
    "addresses": {"mesh": "100.64.0.1"},
    "k3s": {"capable": False, "reasons": ["a container without systemd"]},
}


def test_one_line_a_machine_with_what_is_known() -> None:
    header, gpu, head, bare, total = node_table.build_table([H100, HEAD, {"name": "x"}])
    assert header.split() == ["name", "CPU", "RAM", "GPU", "VRAM", "NICs", "mesh", "K3s", "price"]
    cells = (
        "208 x86_64",
        "1772 GiB",
        "8 x NVIDIA H100 80GB HBM3",
        "79.6 GiB",
        "8 x 400 Gb/s ib",
        "direct",
        "yes",
        "23.92 USD/h",
    )
    assert all(cell in gpu for cell in cells)
    # Columns are aligned.
    assert all(
        gpu[header.index(title)] != " " and gpu[header.index(title) - 1] == " " for title in ("CPU", "GPU", "price")
    )
    assert "none" in head and "1 x 10 Gb/s ethernet" in head and "no: a container without systemd" in head
    assert "unknown" in head and bare.split() == ["x", *"-" * 8]
    assert total == "3 machines, 8 GPUs, 23.92 USD/h, the price of 2 unknown"


def test_a_record_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InputError, match=r"^nodes\[1\]\.gpu\.count"):
        node_table.build_table([H100, {"name": "b", "gpu": {"count": "many"}}])


def test_k3s_is_left_out_where_nobody_asks_for_it() -> None:
    record = {"name": "n", "k3s": {"capable": False, "reasons": ["it is a container"]}}
    assert "K3s" in node_table.build_table([record])[0] and "it is a container" in node_table.build_table([record])[1]
    short = node_table.build_table([record], k3s=False)
    assert "K3s" not in short[0] and "container" not in short[1] and short[0].endswith("price")


def sparks(**of_second: t.Any) -> list[dict[str, t.Any]]:
    first, second = (fixture_node("dgx_spark", name, number).to_dict() for name, number in (("a", 31), ("b", 32)))
    return [first, {**second, **of_second}]


def test_the_link_between_two_sparks() -> None:
    assert node_table.check_link(sparks()) == {"problems": [], "notes": []} == node_table.check_link([H100, HEAD])
    nics = [{**item, "mtu": 1500} for item in sparks()[1]["nics"]]
    told = node_table.check_link(sparks(nics=nics))
    assert told["problems"] == [] and len(told["notes"]) == 2
    assert told["notes"][0].startswith("b: cx7_mtu: enp1s0f1np1 has MTU 1500 instead of 9000. Set mtu: 9000")


def test_a_link_that_jobs_cannot_use_is_a_problem() -> None:
    lan = [{**item, "address": "192.168.100.132"} for item in sparks()[1]["addresses"]["lan"]]
    told = node_table.check_link(sparks(addresses={"lan": lan}))
    assert told["problems"] and told["problems"][0].startswith("b: cx7_addresses: both halves of port 1")
    users = [{**item, "ssh": {"user": name}} for item, name in zip(sparks(), ("nv", "me"), strict=True)]
    assert node_table.check_link(users)["problems"][0].startswith(
        "pair_users: the users differ: nv on a, me on b. Make"
    )


def test_a_declared_address_on_wifi_is_told() -> None:
    wifi = {"address": "192.168.1.232", "interface": "wlP9s9", "prefix": 24}
    records = sparks(addresses={"lan": [*sparks()[1]["addresses"]["lan"], wifi]})
    assert node_table.check_link(records)["notes"] == []
    (note,) = node_table.check_link(records, {"b": "192.168.1.232"})["notes"]
    assert note.startswith("b: bootstrap_on_wifi: ranks meet over wlP9s9, which is Wi-Fi. Connect the machines by wire")
