# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of what Brev's client lists."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._providers.brev import mapping


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("RUNNING", "running"),
        ("Connected", "running"),
        ("DEPLOYING", "creating"),
        ("STOPPED", "stopped"),
        ("FAILURE", "failed"),
        ("DELETING", "gone"),
        ("Disconnected", "offline"),
        ("a new word", "unknown"),
        (None, "unknown"),
    ],
)
def test_its_status_is_a_state_of_ours(status: str | None, state: str) -> None:
    host = mapping.to_host({"kind": "workspaces", "name": "a", "id": "7", "ssh": None, "status": status})
    assert (host.id, host.record["state"], host.record["ownership"]) == ("brev/7", state, "rented")
    assert host.direct is None and host.data["brev_status"] == status


def test_a_machine_without_an_id_is_known_by_its_name() -> None:
    host = mapping.to_host({"kind": "nodes", "name": "spark", "ssh": None})
    assert (host.id, host.record["ownership"], host.data["brev_kind"]) == ("brev/spark", "owned", "node")
    assert host.record["gpu"]["model"] is None and host.record["product"] is None
