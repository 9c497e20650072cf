# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an instance of Vast.ai to a node record."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import one


@pytest.mark.parametrize(
    ("index", "state", "kind", "direct"),
    [
        (0, "running", "container", ("192.0.2.45", 20000, "root")),
        (1, "running", "vm", ("ssh6.vast.ai", 10600, "root")),
        (2, "creating", "container", ("ssh6.vast.ai", 10601, "root")),
        (3, "failed", "container", ("ssh6.vast.ai", 10600, "root")),
        (4, "failed", "container", ("192.0.2.45", 20000, "root")),
        (5, "stopped", "container", ("192.0.2.45", 20000, "root")),
    ],
)
def test_vast_states_and_endpoints(index: int, state: str, kind: str, direct: tuple[str, int, str]) -> None:
    host, record = one("vastai", index)
    assert (record["state"], record["kind"], host.direct) == (state, kind, direct)
    assert record["k3s"]["capable"] is (kind == "vm")


def test_vast_units() -> None:
    host, record = one("vastai", 0)
    assert record["gpu"] == {"model": "RTX 4090", "count": 4, "memory_gib": 24.0, "arch": None}
    # Half of the machine's cores come with half of its memory.
    assert record["memory_gib"] == round(515000 / 2 / 1024, 1) and record["cpu"] == {"count": 32, "arch": "x86_64"}
    assert record["created_at"] == "2026-11-21T10:40:00Z" and record["preemptible"] is False
    assert one("vastai", 2)[0].name == "vast-314" and host.data["vastai_machine_id"] == "12"
