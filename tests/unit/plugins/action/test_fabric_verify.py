# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric_verify action returns the whole result, and only its messages when it failed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.action import fabric_verify

RESULT: dict[str, t.Any] = {"changed": False, "msg": "slow", "exit_code": 1, "fabric": {"islands": []}, "hosts": {}}


@pytest.mark.parametrize("failed", [False, True])
def test_the_evidence_of_a_failed_result_is_in_its_file(monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    monkeypatch.setattr(fabric_verify.ActionModule, "request", lambda _self, _options, _variables, hosts: hosts)
    monkeypatch.setattr(
        fabric_verify.fabric_verify, "run", lambda hosts: {**RESULT, "failed": failed, "table": list(hosts)}
    )
    action = fabric_verify.ActionModule.__new__(fabric_verify.ActionModule)
    result = action.work({"hosts": None}, {"ansible_play_hosts_all": ["a"]})
    assert result["table"] == ["a"] and result["msg"] == "slow" and ("fabric" in result) is not failed
    assert action.work({"hosts": ["b"]}, {"ansible_play_hosts_all": ["a"]})["table"] == ["b"]
