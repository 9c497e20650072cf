# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that lack their end, by their format."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_layouts, checkpoints
from ansible_collections.muster.training.tests.support.layout_parts import build, trainer


def test_lines_of_json_have_their_end(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {"a.json": b'{"a": 1}\n{"a": 2}\n', "b.json": b'{"a": 1}\n{"a":'})
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "auto")] == ["a.json"]


def test_a_file_that_is_only_called_safetensors_is_not_said_to_lack_its_end(tmp_path: pathlib.Path) -> None:
    """Its first bytes are the length of no header, which a file that was cut would have: its end cannot be told."""
    build(tmp_path, {**trainer(10), **trainer(20), "checkpoint-20/model.safetensors": b"x" * 4096})
    assert [saved.problem for saved in checkpoint_layouts.find(tmp_path)] == ["", ""]
    build(tmp_path / "cut", {**trainer(30), "checkpoint-30/model.safetensors": (10**6).to_bytes(8, "little") + b"{"})
    (newest,) = checkpoint_layouts.find(tmp_path / "cut")
    assert newest.problem == "is half saved: model.safetensors lacks its end"


@pytest.mark.parametrize(("version", "at"), [(0, 40), (1, 44), (2, 28), (3, 28)])
def test_a_file_of_hdf5_that_is_shorter_than_it_says_lacks_its_end(
    tmp_path: pathlib.Path, version: int, at: int
) -> None:
    """``weights.N.h5`` of Keras; the offsets are those of its file format specification."""
    body = bytearray(200)
    body[:9] = b"\x89HDF\r\n\x1a\n" + bytes([version])
    first = 13 if version < 2 else 9
    body[first : first + 2] = b"\x08\x08"
    body[at : at + 8] = len(body).to_bytes(8, "little")
    build(tmp_path, {"weights.1.h5": bytes(body), "weights.2.h5": bytes(body[:-1]), "weights.3.h5": bytes(body[:20])})
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "auto")] == ["weights.1.h5"]
