# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action training_job_info: logs or records, and the cluster of a run in pods that cannot be queried."""

from __future__ import annotations

import pathlib
import re
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.action import training_job_info as subject

OPTIONS: dict[str, t.Any] = {
    "run_id": None,
    "live": False,
    "logs": None,
    "ranks": False,
    "follow": False,
    "rank": None,
    "grep": None,
    "limit": None,
    "query": None,
    "kubeconfig": None,
    "context": None,
    "cluster": "default",
}


class Action(subject.ActionModule):
    """The action without a task behind it."""

    def __init__(self, folder: pathlib.Path, check: bool = False) -> None:
        self._task = types.SimpleNamespace(check_mode=check)
        self._loader = types.SimpleNamespace(get_basedir=lambda: str(folder))
        self._play_context = None


def work(folder: pathlib.Path, **changes: t.Any) -> dict[str, t.Any]:
    options = {**OPTIONS, "state_home": {"path": str(folder / "state")}, **changes}
    return Action(folder).work(options, {"hostvars": {}})


def test_records_of_an_empty_state_home(tmp_path: pathlib.Path) -> None:
    result = work(tmp_path)
    assert result["runs"] == [] and result["summary"] == []


def test_logs_of_a_run_that_does_not_exist_are_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(subject.MusterError, match="run"):
        work(tmp_path, logs=5, run_id="absent-1a2b3c4d")


def test_a_cluster_that_cannot_be_queried_is_unknown(tmp_path: pathlib.Path) -> None:
    """A broken kubeconfig must not hide the other runs: the state of this one is unknown, with the reason."""
    options = {**OPTIONS, "kubeconfig": str(tmp_path / "absent.config")}
    (name,) = [
        name for name, value in vars(subject.ActionModule).items() if re.match(r"_[a-z]", name) and callable(value)
    ]
    query = getattr(Action(tmp_path), name)
    found = query(options)({"run_id": "a-1", "backend_ref": {"context": "lab"}})
    assert found["phase"] == "unknown" and "absent.config" in found["detail"]
