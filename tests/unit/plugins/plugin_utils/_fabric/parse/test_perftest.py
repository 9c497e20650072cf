# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of perftest: units, several sizes, failures, JSON; and no text or document breaks the readers of network tools."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.iperf3 import (
    parse_iperf3,
    parse_iperf3_json,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.perftest import (
    parse_perftest,
    parse_perftest_json,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.rdma_tools import (
    parse_ibstat,
    parse_show_gids,
)

RULE = "-" * 87


def perftest(
    unit: str = "Gb/sec", rows: str = " 65536      5000             92.58              92.56                0.176543"
) -> str:
    return f"""{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 2\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : Ethernet
{RULE}
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
{rows}
{RULE}
"""


@pytest.mark.parametrize(("unit", "gbps"), [("Gb/sec", 92.56), ("MB/sec", 0.74048), ("MiB/sec", 0.776449)])
def test_perftest_units(unit: str, gbps: float) -> None:
    found = parse_perftest(perftest(unit))
    assert found and found.best_gbps == pytest.approx(gbps, rel=1e-5)
    assert (found.test, found.device, found.link) == ("RDMA_Write BW Test", "mlx5_0", "Ethernet")


def test_perftest_with_many_sizes_and_noise() -> None:
    rows = "Conflicting CPU frequency\n 2  5000  0.00  0.012281  0.767588\n 65536  1000  328.64  328.61 \t\t 0.6"
    found = parse_perftest(perftest(rows=rows))
    assert found and [row.size_bytes for row in found.rows] == [2, 65536]
    assert found.best_gbps == 328.61


def test_perftest_that_failed() -> None:
    found = parse_perftest(
        perftest().split(" #bytes")[0] + " Failed to modify QP 75 to RTR\n Unable to Connect the HCA's\n"
    )
    assert found and found.rows == () and found.problem == "Failed to modify QP 75 to RTR"


def test_perftest_json() -> None:
    results = {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 92.6, "BW_average": 92.5, "MsgRate": 0.1}
    info = {"test": "RDMA_Write BW Test", "Device": "mlx5_0", "Link_type": "IB"}
    found = parse_perftest_json({"test_info": info, "results": results})
    assert found and (found.best_gbps, found.device) == (92.5, "mlx5_0")
    slower = parse_perftest_json({"test_info": info, "results": [results]}, "MiB/sec")
    assert slower and slower.best_gbps == pytest.approx(92.5 * 8 * 2**20 / 1e9)


IPERF = """[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec   12             sender
[  5]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
[  7]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec    3             sender
[  7]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
"""


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


HEAD = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(anything, st.text(max_size=300))
def test_nothing_breaks_the_readers(value: t.Any, text: str) -> None:
    for document in (
        value,
        {"start": {}, "end": value},
        {"start": {}, "end": {"sum_sent": value, "sum_received": value}},
    ):
        parse_iperf3_json(document)
    for document in (value, {"test_info": value}, {"test_info": {}, "results": value}):
        parse_perftest_json(document)
    parse_perftest_json({"test_info": {"test": value}, "results": {"BW_average": value, "MsgSize": value}})
    for reader in (parse_perftest, parse_iperf3, parse_ibstat, parse_show_gids):
        reader(text)
        reader(perftest() + text)
        reader(IBSTAT + text)
        reader(HEAD + text)
        reader(IPERF + text)
