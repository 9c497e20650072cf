# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls an action's ``work`` without Ansible and returns what its workflow gets."""

from __future__ import annotations

import importlib
import pathlib
import types
import typing as t

import pytest

BASE = pathlib.Path("/play")


def say(_line: str) -> None:
    """Stand for the action's progress."""


def workflow_call(
    monkeypatch: pytest.MonkeyPatch, name: str, workflow: str, *, check: bool, diff: bool = False
) -> tuple[t.Any, ...]:
    """Return the arguments that the action ``name`` hands to ``run`` of its workflow, whose result it must return."""
    action = importlib.import_module(f"ansible_collections.muster.training.plugins.action.{name}")
    calls: list[tuple[t.Any, ...]] = []
    monkeypatch.setattr(getattr(action, workflow), "run", lambda *args: calls.append(args) or {"changed": check})
    task = types.SimpleNamespace(diff=diff)
    reporter = types.SimpleNamespace(say=say)
    instance: t.Any = types.SimpleNamespace(base=BASE, check=check, _task=task, reporter=lambda: reporter)
    assert action.ActionModule.work(instance, {"name": "x"}, {}) == {"changed": check}
    return calls[0]
