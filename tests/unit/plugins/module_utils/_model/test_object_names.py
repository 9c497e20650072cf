# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that the controller and the node agent build in the same way."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.object_names import unit_marker


def test_a_marker_names_run_and_unit_and_tells_folders_apart() -> None:
    marker = unit_marker("/home/a/runs/char-lm-1", "agent")
    assert marker.startswith("char-lm-1/agent/") and len(marker.rpartition("/")[2]) == 12
    assert marker != unit_marker("/home/b/runs/char-lm-1", "agent")
    assert marker != unit_marker("/home/a/runs/char-lm-1", "store")
    assert unit_marker("/home/a/runs/char-lm-1/", "agent").startswith("char-lm-1/agent/")
