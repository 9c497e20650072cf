# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnose_run action hands its options over within their limits."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.action import diagnose_run

OPTIONS: dict[str, t.Any] = {
    "run_id": "r",
    "attach": False,
    "hosts": None,
    "window_s": 90.0,
    "ras_s": -1.0,
    "dest": None,
    "kubeconfig": "/k",
    "context": None,
    "namespace": "team",
    "state_home": {"path": "/state"},
    "cluster": "default",
}


def test_options_become_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose_run.ActionModule, "check", True)
    monkeypatch.setattr(diagnose_run.ActionModule, "base", pathlib.Path("/play"))
    for name in ("connect", "reporter"):
        monkeypatch.setattr(diagnose_run.ActionModule, name, lambda *_values: None)
    monkeypatch.setattr(diagnose_run.diagnose_run, "run", lambda request: {"request": request})
    action = diagnose_run.ActionModule.__new__(diagnose_run.ActionModule)
    request = action.work(OPTIONS, {"ansible_play_hosts_all": ["a", "b"], "hostvars": {}})["request"]
    assert (request.window_s, request.ras_s, request.hosts, request.check) == (60.0, 0.0, ["a", "b"], True)
    assert request.cluster == {"kubeconfig": "/k", "context": None, "namespace": "team", "own_cluster": None}
