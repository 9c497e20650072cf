# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of the request s3 reach what carries them out."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.module_utils._node import host_agent


def test_steps_get_the_folder_of_their_run(tmp_path: pathlib.Path) -> None:
    secrets = tmp_path / "n" / "runs" / "r" / "secrets"
    request = {"op": "s3", "node": "n", "state_root": str(tmp_path), "step": "renew", "run_id": "r"}
    request |= {"file": "../../checkpoints.json", "content": "{}"}
    assert host_agent.answer_request(request) == {"renewed": False}
    secrets.mkdir(parents=True)
    (secrets / "checkpoints.json").write_text("old")
    assert host_agent.answer_request(request) == {"renewed": True}
    assert (secrets / "checkpoints.json").read_text() == "{}"
    assert (secrets / "checkpoints.json").stat().st_mode & 0o777 == 0o600
