# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run moves, by the files that a controller keeps of it."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import movement

Dict = dict[str, t.Any]


def test_a_run_without_attempts_is_not_judged(tmp_path: pathlib.Path) -> None:
    assert movement.read_movement(tmp_path, 100.0) == ("moving", "")


def test_only_the_end_of_a_long_file_is_read(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text("x" * (1 << 17) + "\nlast\n")
    end = movement.read_end(place)
    assert end.endswith("\nlast\n") and len(end) == 1 << 16
    assert movement.read_end(tmp_path / "absent") == ""


def test_a_line_for_people_leaves_out_what_is_unknown() -> None:
    bare: Dict = {"nodes": 0, "nodes_asked": 2, "ranks": 0, "ranks_asked": 2, "restarts": 0}
    assert movement.describe_state(bare) == "ranks 0/2"
    full = {
        "nodes": 2,
        "ranks": 2,
        "step": 7,
        "loss": 0.25,
        "tokens_per_s": 12345.6,
        "samples_per_s": 3.21,
        "checkpoint_step": 5,
    }
    text = "nodes 2/2 · ranks 2/2 · step 7 · loss 0.2500 · 12,346 tokens/s · 3.2 samples/s · checkpoint 5"
    assert movement.describe_state({**bare, **full, "restarts": 1, "cost_usd": 2.5}) == f"{text} · restarts 1 · $2.50"
    assert movement.describe_state({**bare, **full, "step_age_s": 20.0}) == f"{text} · 20 s ago"
    assert (
        movement.describe_state({**bare, **full, "step_age_s": 540.0, "stalled_s": 540.0})
        == f"{text} · no step for 9 min"
    )


def test_the_end_of_a_log(tmp_path: pathlib.Path) -> None:
    assert movement.read_end(tmp_path / "none.log") == ""
    (tmp_path / "a.log").write_bytes(b"x" * 70_000 + b"\xffend\n")
    text = movement.read_end(tmp_path / "a.log")
    assert text.endswith("end\n") and len(text) <= 64 * 1024
