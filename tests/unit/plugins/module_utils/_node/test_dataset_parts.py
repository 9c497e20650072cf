# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of objects: how far each segment is survives, and ETags of every kind are compared."""

from __future__ import annotations

import hashlib
import pathlib
import random

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import dataset_parts
from ansible_collections.muster.training.plugins.module_utils._node.dataset_parts import (
    Part,
    StoppedError,
    digest_file,
    part_sizes,
)
from ansible_collections.muster.training.plugins.module_utils._node.s3_client import S3Error


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


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


@pytest.mark.parametrize("size", [5 << 20, 8 << 20, 6 << 20])
def test_etags_of_uploads_in_parts_are_compared(tmp_path: pathlib.Path, size: int) -> None:
    body = random.Random(size).randbytes((17 << 20) + 5)
    (tmp_path / "f").write_bytes(body)
    parts = [body[first : first + size] for first in range(0, len(body), size)]
    etag = md5(b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts))
    assert digest_file(tmp_path / "f", f'"{etag}-{len(parts)}"') == (f"{etag}-{len(parts)}", True)
    assert digest_file(tmp_path / "f", f'"{etag[::-1]}-{len(parts)}"') == (md5(body), None)


def test_plain_etags_are_digests_or_cannot_be_compared(tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    for etag, expected in ((md5(b"abc"), True), (md5(b"abd"), False), ("0123-x", None), ("W/odd", None)):
        assert digest_file(tmp_path / "f", f'"{etag}"')[1] is expected, etag
    assert part_sizes(0, 0) == [] and part_sizes(10, 1)[0] == 1 << 20
