# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection options of all workflows that use an API server."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.kube_connection import (
    CONNECTION,
    select_connection,
)


def test_paths_are_relative_to_the_playbook(tmp_path: pathlib.Path) -> None:
    found = select_connection({"ca_path": "ca.pem", "token": "t", "kubeconfig": "a:/b", "other": 1}, tmp_path)
    assert set(found) == set(CONNECTION), "nothing else is handed on"
    assert found["ca_path"] == str(tmp_path / "ca.pem") and found["token"] == "t"
    assert found["kubeconfig"] == f"{tmp_path / 'a'}:/b"
    assert select_connection({"token_file": "/x/token"}, tmp_path)["token_file"] == "/x/token"
    assert select_connection({}, tmp_path)["kubeconfig"] is None
