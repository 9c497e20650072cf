# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the checkpoints of a start are."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._launch.base import RunContext


@pytest.mark.parametrize(
    ("folder", "part", "found"),
    [
        (None, "", "/run/checkpoints"),
        (None, "attempt-3", "/run/checkpoints/attempt-3"),
        ("/mnt/x-1", "", "/mnt/x-1"),
        ("/mnt/x-1", "attempt-3", "/mnt/x-1/attempt-3"),
    ],
)
def test_a_start_has_its_folder(folder: str | None, part: str, found: str) -> None:
    assert RunContext("x-1", 20_000, 3, folder, part).checkpoints_in("/run") == found
