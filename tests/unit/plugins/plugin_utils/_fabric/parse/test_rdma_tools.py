# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of show_gids and listings of ibstat."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.rdma_tools import (
    find_moving_gid_index,
    parse_ibstat,
    parse_show_gids,
)
from ansible_collections.muster.training.tests.support.nccl_text import codes, judged

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.36.1010
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tCA type: MT4129
\tPort 1:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: unknown
\t\tLink layer: Ethernet
"""


def test_ibstat() -> None:
    first, second = parse_ibstat(IBSTAT)
    assert (first.device, first.port, first.state, first.rate_gbps, first.link_layer) == (
        "mlx5_0",
        1,
        "Active",
        400,
        "InfiniBand",
    )
    assert (second.state, second.rate_gbps) == ("Down", None)


HEAD = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"


def gids(*rows: tuple[str, int, int, str, str]) -> str:
    lines = [
        f"{device}\t{port}\t{index}\t0000:0000:0000:0000:0000:ffff:ac14:0101\t{ipv4}  \t{version}\tnet1"
        for device, port, index, ipv4, version in rows
    ]
    return HEAD + "\n".join(lines) + "\n"


def test_show_gids() -> None:
    (table,) = parse_show_gids(gids(("mlx5_4", 1, 4, "172.20.1.1", "v1"), ("mlx5_4", 1, 5, "172.20.1.1", "v2")))
    assert [(gid.index, gid.version, gid.ipv4, gid.netdev) for gid in table.entries] == [
        (4, "v1", "172.20.1.1", "net1"),
        (5, "v2", "172.20.1.1", "net1"),
    ]


def test_an_index_that_moves() -> None:
    one, other = gids(("mlx5_0", 1, 3, "10.0.0.1", "v2")), gids(("mlx5_0", 1, 5, "10.0.0.2", "v2"))
    assert find_moving_gid_index(parse_show_gids(one + "\n" + other))
    assert find_moving_gid_index(parse_show_gids(one + "\n" + one)) is None
    apart = gids(("mlx5_1", 1, 5, "10.0.0.2", "v2"))
    assert find_moving_gid_index(parse_show_gids(one + "\n" + apart)) is None
    found = judged(*(one + "\n" + other).splitlines())
    assert (found.kind, codes(found), found.outcome) == ("show_gids", ["roce_gid_per_pod"], "warn")


def test_an_empty_table() -> None:
    assert codes(judged(*HEAD.splitlines(), "n_gids_found=0")) == ["roce_gid_per_pod"]
    assert codes(judged(*gids(("mlx5_0", 1, 3, "10.0.0.1", "v2")).splitlines())) == []
