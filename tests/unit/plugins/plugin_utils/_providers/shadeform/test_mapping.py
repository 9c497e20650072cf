# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an instance of Shadeform to a node record."""

from __future__ import annotations

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import one


def test_shadeform_units_and_port() -> None:
    host, record = one("shadeform", 0)
    assert record["price_usd_per_hour"] == 14.40 and record["gpu"]["memory_gib"] == 80.0 and record["kind"] is None
    assert host.direct == ("192.0.2.77", 22, "shadeform") and record["k3s"]["capable"] is None
    waiting, record = one("shadeform", 1)
    assert waiting.direct is None and record["state"] == "creating"
