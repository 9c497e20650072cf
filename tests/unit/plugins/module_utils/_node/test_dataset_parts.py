# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of objects: how far each segment is survives."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import dataset_parts
from ansible_collections.muster.training.plugins.module_utils._node.dataset_parts import Part, StoppedError
from ansible_collections.muster.training.plugins.module_utils._node.s3_client import S3Error


def test_segments_are_written_at_their_places_and_remembered(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_parts, "SEGMENT_BYTES", 10)
    part = Part(tmp_path / "p", 25)
    part.write(2, b"xyz")
    part.write(0, b"0123")
    again = Part(tmp_path / "p", 25)
    assert again.count == 3 and again.done == [4, 0, 3] and again.received_bytes == 7
    again.write(0, b"456789")
    again.write(1, b"abcdefghij")
    again.write(2, b"!!")
    again.put(tmp_path / "tree" / "a b")
    assert (tmp_path / "tree" / "a b").read_bytes() == b"0123456789abcdefghijxyz!!"
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_one_segment_is_as_far_as_its_file_is_long(tmp_path: pathlib.Path) -> None:
    part = Part(tmp_path / "p", 5)
    part.write(0, b"abc")
    assert Part(tmp_path / "p", 5).done == [3]
    with pytest.raises(S3Error, match="with more"):
        part.write(0, b"defg")
    part.remove()
    with pytest.raises(StoppedError):
        part.write(0, b"d")
    assert list(tmp_path.iterdir()) == []
