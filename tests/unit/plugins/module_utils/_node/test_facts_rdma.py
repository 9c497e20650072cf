# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA facts: the rate of a port."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_rdma,
)


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("100 Gb/sec (4X EDR)", 100),
        ("unknown", None),
        (None, None),
    ],
)
def test_rate(text: str | None, gbps: float | None) -> None:
    assert facts_rdma.parse_rate_gbps(text) == gbps
