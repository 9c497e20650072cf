# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnose_logs action diagnoses a folder, and reports a missing one as a failure of one line."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.action import diagnose_logs


def play(monkeypatch: pytest.MonkeyPatch, path: pathlib.Path, *, check: bool = False) -> dict[str, t.Any]:
    monkeypatch.setattr(ActionBase, "run", lambda _self, _tmp, _variables: {})
    options = {"path": str(path), "dest": str(path / "out.json")}
    monkeypatch.setattr(ActionBase, "validate_argument_spec", lambda _self, _spec: (None, options))
    action = diagnose_logs.ActionModule.__new__(diagnose_logs.ActionModule)
    action._task = types.SimpleNamespace(check_mode=check)
    return action.run(task_vars={})


def test_a_folder_is_diagnosed_and_check_mode_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "a.log").write_text("CUDA out of memory. Tried to allocate 2 GiB\n")
    result = play(monkeypatch, tmp_path, check=True)
    assert result["changed"] is True and [item["file"] for item in result["diagnoses"]] == ["a.log"]
    assert not (tmp_path / "out.json").exists()
    assert play(monkeypatch, tmp_path)["changed"] is True and (tmp_path / "out.json").exists()
    assert play(monkeypatch, tmp_path)["changed"] is False


def test_a_folder_that_does_not_exist_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    result = play(monkeypatch, tmp_path / "none")
    assert result["failed"] is True and "does not exist" in result["msg"] and "\n" not in result["msg"]
