# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of iperf3, text and JSON."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.iperf3 import (
    parse_iperf3,
    parse_iperf3_json,
)

IPERF = """[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec   12             sender
[  5]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
[  7]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec    3             sender
[  7]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
"""


TOTAL = """[SUM]   0.00-10.00  sec  10.9 GBytes  9.36 Gbits/sec   15             sender
[SUM]   0.00-10.04  sec  10.9 GBytes  9.32 Gbits/sec                  receiver
"""


@pytest.mark.parametrize("text", [IPERF, IPERF + TOTAL])
def test_iperf3(text: str) -> None:
    found = parse_iperf3(text)
    assert found and (found.sent_gbps, found.received_gbps) == (pytest.approx(9.36), pytest.approx(9.32))
    assert (found.retransmits, found.streams, found.seconds) == (15, 2, 10.04)


def test_iperf3_that_failed() -> None:
    found = parse_iperf3("iperf3: error - unable to connect to server: Connection refused\n")
    assert found and found.problem == "unable to connect to server: Connection refused" and found.received_gbps is None


def test_iperf3_json() -> None:
    end = {
        "sum_sent": {"bits_per_second": 9.4e9, "retransmits": 7, "seconds": 10.0},
        "sum_received": {"bits_per_second": 9.3e9, "seconds": 10.04},
        "streams": [{}, {}],
    }
    found = parse_iperf3_json({"start": {}, "end": end})
    assert found and (found.received_gbps, found.retransmits, found.streams) == (pytest.approx(9.3), 7, 2)
    broken = parse_iperf3_json({"start": {}, "end": {}, "error": "unable to connect"})
    assert broken and broken.problem == "unable to connect"
