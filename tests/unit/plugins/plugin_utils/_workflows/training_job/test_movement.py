# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run moves, by the files that a controller keeps of it."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import movement


def test_a_run_without_attempts_is_not_judged(tmp_path: pathlib.Path) -> None:
    assert movement.read_movement(tmp_path, 100.0) == ("moving", "")


def test_only_the_end_of_a_long_file_is_read(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text("x" * (1 << 17) + "\nlast\n")
    end = movement.read_end(place)
    assert end.endswith("\nlast\n") and len(end) == 1 << 16
    assert movement.read_end(tmp_path / "absent") == ""
