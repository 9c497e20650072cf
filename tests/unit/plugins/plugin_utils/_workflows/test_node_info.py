# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts and checks of a node, from one request."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows import node_info


class FakeRemote:
    """A node whose clock differs by some seconds."""

    name = "gpu-1"

    def __init__(self, skew: float) -> None:
        self.skew = skew
        self.requests: list[dict[str, t.Any]] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.requests.append({"op": op, **values})
        training = {"version": "3.12.4", "packages": {"torch": "2.9.0"}, "problem": None}
        state = {"path": "/var/lib/muster", "free_bytes": 1 << 40, "problem": None}
        return {"time": time.time() + self.skew, "state": state, "training": training, "live_runs": []}


def gather(skew: float) -> tuple[FakeRemote, dict[str, t.Any]]:
    remote = FakeRemote(skew)
    return remote, node_info.gather_node_info(t.cast(t.Any, remote), "python3", ["torch"], False)


def test_one_request_gives_facts_and_checks() -> None:
    remote, result = gather(0.0)
    assert remote.requests == [{"op": "info", "python": "python3", "packages": ["torch"], "facts": False}]
    assert result["changed"] is False and result["node"]["training"]["packages"] == {"torch": "2.9.0"}
    assert abs(result["node"]["clock_skew_s"]) < 1 and {"ok", "failures", "checks"} <= result["checks"].keys()


def test_a_clock_that_differs_is_measured() -> None:
    _remote, result = gather(3600.0)
    assert abs(result["node"]["clock_skew_s"] - 3600) < 1
    assert [check["name"] for check in result["checks"]["checks"] if not check["ok"]] == ["clock"]
