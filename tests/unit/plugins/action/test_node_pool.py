# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node_pool action ends what this disk knows of while the store of the state is away, and nothing else."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.action import node_pool
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.memory_state import MemoryState
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.pool_accounts import parse


def play(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, **given: t.Any) -> dict[str, t.Any]:
    home = {"path": str(folder)}
    options = parse(node_pool.ActionModule, {"cluster": "lab", "providers": [], "state_home": home, **given})
    monkeypatch.setattr(ActionBase, "run", lambda _self, _tmp, _variables: {})
    monkeypatch.setattr(ActionBase, "validate_argument_spec", lambda _self, _spec, **_rules: (None, options))
    monkeypatch.setattr(StateHome, "store", lambda _home: MemoryState(away=True))
    action = node_pool.ActionModule.__new__(node_pool.ActionModule)
    action._task = types.SimpleNamespace(check_mode=False)
    monkeypatch.setattr(action, "_add_kubeconfig", lambda options, _variables: options)
    monkeypatch.setattr(node_pool.ActionModule, "base", folder)
    monkeypatch.setattr(action, "reporter", lambda: types.SimpleNamespace(say=lambda _line: None))
    return action.run(task_vars={})


def test_a_teardown_comes_to_its_end_without_the_store_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    result = play(monkeypatch, tmp_path, state="absent")
    assert result["failed"] and result["leases"] == [] and "does not answer" in result["msg"]
    assert "own copy of the state is used" in result["warnings"][0]


def test_what_is_only_due_may_have_another_deadline_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    result = play(monkeypatch, tmp_path, state="absent", due_only=True)
    assert result["failed"] and "does not answer" in result["msg"] and "leases" not in result
