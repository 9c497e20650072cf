# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed program said last, wherever its launcher printed it."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.outcome import add_error_line

CRASH = RunOutcome("failed", 3, "crash", "a rank on n1 ended with exit code 3", "n1")


def test_the_log_of_the_failed_node_comes_first_and_then_those_of_others(tmp_path: pathlib.Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    assert add_error_line(tmp_path, CRASH) == CRASH
    (logs / "n0.log").write_text("[prterun-n0-9@1,1]<stdout>: ValueError: printed by mpirun\n")
    assert add_error_line(tmp_path, CRASH).detail.endswith("exit code 3: ValueError: printed by mpirun")
    (logs / "n1.log").write_text("[1,1]<stderr>:KeyError: 'own'\n")
    assert add_error_line(tmp_path, CRASH).detail.endswith("exit code 3: KeyError: 'own'")
