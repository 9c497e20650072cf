# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoint folders with what no program should leave there: every look at them comes to an end, and tells the truth."""

from __future__ import annotations

import os
import pathlib
import signal
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_care,
    checkpoint_copies,
    checkpoint_layouts,
    checkpoint_steps,
    checkpoint_trackers,
    checkpoints,
)
from ansible_collections.muster.training.tests.support.layout_parts import ARCHIVE, SHARD, Tree, build, trainer, zero

INDEX = "checkpoint-1/model.safetensors.index.json"
NESTED = b"[" * 60_000


class _Waited(BaseException):
    """A look waited for a writer."""


def _stop(*_args: object) -> t.NoReturn:
    raise _Waited


@pytest.fixture(autouse=True)
def waits() -> t.Iterator[None]:
    """Nothing here waits: a look that does is ended, and no suppressed error hides that."""
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def tensors(header: bytes) -> bytes:
    """Return a file of safetensors with a header."""
    return len(header).to_bytes(8, "little") + header


def look(folder: pathlib.Path) -> list[str]:
    """Look at a folder in each of the ways in which a node does; return what is said of each checkpoint."""
    said = [saved.problem for saved in checkpoints.list_saved(folder, "auto")]
    checkpoint_copies.list_entries(folder, "auto")
    checkpoint_layouts.find_tracker_problem(folder)
    checkpoint_layouts.mend_trackers(folder)
    checkpoint_care.pass_over(folder, {"format": "auto"}, first=True)
    return said


TORN = "is half saved: {} lacks its end"


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({**trainer(1), "checkpoint-1/config.json": NESTED}, TORN.format("config.json")),
        ({**trainer(1), "checkpoint-1/model.safetensors": tensors(NESTED)}, TORN.format("model.safetensors")),
        (
            {**trainer(1), "checkpoint-1/model.safetensors": tensors(b'{"a": {"data_offsets": [0, "4"]}}')},
            TORN.format("model.safetensors"),
        ),
        ({**trainer(1), INDEX: b'{"weight_map":' + b" " * 70_000 + NESTED}, ""),
        *(
            (
                {**trainer(1), INDEX: b'{"weight_map": {"a": "%s"}}' % name},
                f"is half saved: {name.decode()}, which model.safetensors.index.json names, is not there",
            )
            for name in (b"", b".", b"../other/a.safetensors", b"/etc/passwd", b"parts/a.safetensors")
        ),
        (
            {
                **trainer(1),
                "checkpoint-1/parts/a.safetensors": SHARD,
                INDEX: b'{"weight_map": {"a": "parts/a.safetensors"}}',
            },
            "",
        ),
    ],
)
def test_files_that_are_no_json_of_their_kind_are_judged(tmp_path: pathlib.Path, tree: Tree, said: str) -> None:
    assert look(build(tmp_path, tree)) == [said]


def test_a_tracker_may_say_a_number_that_python_does_not_read(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {**zero(10), "latest": b"1" * 5000})
    assert checkpoint_layouts.find_tracker_problem(tmp_path).startswith("latest names 1111")
    assert look(tmp_path) == [""]


def test_a_long_tracker_is_not_read(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {**zero(10), "latest": b"x" * (2 << 20)})
    (said,) = look(tmp_path)
    assert said.startswith("is not whole: latest, which is written last, cannot be read")


def test_a_tracker_that_lists_many_checkpoints_is_read(tmp_path: pathlib.Path) -> None:
    many = "".join(f'all_model_checkpoint_paths: "ckpt-{number}"\n' for number in range(4000))
    tracker = build(tmp_path, {"checkpoint": f'model_checkpoint_path: "ckpt-7"\n{many}'.encode()}) / "checkpoint"
    layout = checkpoint_layouts.LAYOUTS["tensorflow"]
    assert checkpoint_trackers.read_named(tracker, layout) == "ckpt-7"


def test_nothing_waits_for_the_writer_of_a_pipe(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {**trainer(1), **zero(10)})
    for place in ("latest", "pipe", "checkpoint-1/pipe", "checkpoint-1/model.safetensors.index.json"):
        os.mkfifo(tmp_path / place)
    (tmp_path / "global_step10" / "mp_rank_00_model_states.pt").unlink()
    os.mkfifo(tmp_path / "global_step10" / "mp_rank_00_model_states.pt")
    found = {saved.name: saved.problem for saved in checkpoints.list_saved(tmp_path, "auto")}
    assert found["checkpoint-1"] == ""
    assert found["global_step10"].startswith("is not whole: latest, which is written last, cannot be read")
    assert look(tmp_path)
    assert checkpoint_steps.read_step(tmp_path / "global_step10", "deepspeed") is None
    assert "pipe" not in {entry.name for entry in checkpoint_copies.list_entries(tmp_path, "auto")}


def test_a_pipe_beside_plain_files_is_none(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {"a.pt": ARCHIVE})
    os.mkfifo(tmp_path / "latest")
    assert look(tmp_path) == [""]
