# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The local_nodes action starts or stops the local nodes as its options say."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.action import local_nodes


@pytest.mark.parametrize(
    ("state", "call"), [("present", ("start_local_nodes", "/s", 3, True)), ("absent", ("stop_local_nodes", "/s", True))]
)
def test_the_state_decides(monkeypatch: pytest.MonkeyPatch, state: str, call: tuple[t.Any, ...]) -> None:
    monkeypatch.setattr(local_nodes.ActionModule, "check", True)
    for name in ("start_local_nodes", "stop_local_nodes"):
        monkeypatch.setattr(local_nodes.local_nodes, name, lambda *values, name=name: {"call": (name, *values)})
    action = local_nodes.ActionModule.__new__(local_nodes.ActionModule)
    assert action.work({"state": state, "count": 3, "path": "/s"}, {}) == {"call": call}
