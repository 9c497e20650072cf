# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests of received files: the store's checksums and ETags of every kind are compared."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import random
import typing as t
import zlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.dataset_digests import (
    Checksum,
    ask_checksum,
    ask_part_bytes,
    digest_file,
    is_unchanged,
    part_sizes,
    read_checksum,
)
from ansible_collections.muster.training.plugins.module_utils._node.s3_client import Answer, Store
from ansible_collections.muster.training.tests.fakes import object_store

BODY = random.Random(1).randbytes((17 << 20) + 5)
PART = 8 << 20


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def in_parts(digest: t.Callable[[bytes], bytes]) -> bytes:
    """Return what S3 calls composite: the digest of the parts' digests."""
    return digest(b"".join(digest(BODY[first : first + PART]) for first in range(0, len(BODY), PART)))


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "f").write_bytes(BODY)
    return tmp_path / "f"


@pytest.mark.parametrize("digest", [crc32, sha256])
def test_the_store_s_checksum_decides_whatever_the_etag_is(
    place: pathlib.Path, digest: t.Callable[[bytes], bytes]
) -> None:
    for value, count in ((digest(BODY), 0), (in_parts(digest), 3)):
        text = base64.b64encode(value).decode() + (f"-{count}" if count else "")
        known = read_checksum({"etag": '"e"', f"x-amz-checksum-{digest.__name__}": text}, "e")
        assert known == Checksum(digest.__name__, value.hex(), count)
        found, fits = digest_file(place, '"e"', known)
        assert fits is True and is_unchanged(place, found)
        for position in (0, 8 << 20, len(BODY) - 1):
            with place.open("r+b") as handle:
                handle.seek(position)
                handle.write(bytes([BODY[position] ^ 1]))
            assert not is_unchanged(place, found)
            assert digest_file(place, '"e"', known)[1] is (None if count else False)
            assert digest_file(place, '"e"', known, PART)[1] is False
            place.write_bytes(BODY)


def test_the_etag_decides_where_parts_have_no_common_size(place: pathlib.Path) -> None:
    odd = Checksum("crc32", "00000000", 3)
    assert digest_file(place, f'"{md5(BODY)}"', odd) == (f"md5/0:{md5(BODY)}", True)
    assert digest_file(place, f'"{md5(b"other")}"', odd) == (f"md5/0:{md5(BODY)}", False)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"etag": '"other"', "x-amz-checksum-crc32": "iqPsDA=="},
        {"etag": '"e"', "x-amz-checksum-crc32": "iqPs"},
        {"etag": '"e"', "x-amz-checksum-crc32": "iqPsDA==-x"},
        {"etag": '"e"', "x-amz-checksum-crc32": "!"},
        {"etag": '"e"', "x-amz-checksum-crc64nvme": "iqPsDIqj7Aw="},
    ],
)
def test_what_is_no_checksum_of_this_object_is_not_believed(headers: dict[str, str]) -> None:
    assert read_checksum(headers, '"e"') is None


@pytest.mark.parametrize("size", [5 << 20, 8 << 20, 6 << 20])
def test_etags_of_uploads_in_parts_are_compared(tmp_path: pathlib.Path, size: int) -> None:
    body = random.Random(size).randbytes((17 << 20) + 5)
    (tmp_path / "f").write_bytes(body)
    parts = [body[first : first + size] for first in range(0, len(body), size)]
    etag = md5(b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts))
    assert digest_file(tmp_path / "f", f'"{etag}-{len(parts)}"') == (f"md5/{size}:{etag}", True)
    assert digest_file(tmp_path / "f", f'"{etag[::-1]}-{len(parts)}"') == (f"md5/0:{md5(body)}", None)
    assert digest_file(tmp_path / "f", f'"{etag[::-1]}-{len(parts)}"', None, size)[1] is False


def test_plain_etags_are_digests_or_cannot_be_compared(tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    for etag, expected in ((md5(b"abc"), True), (md5(b"abd"), False), ("0123-x", None), ("W/odd", None)):
        assert digest_file(tmp_path / "f", f'"{etag}"')[1] is expected, etag
    assert part_sizes(0, 0) == [] and part_sizes(10, 1)[0] == 1 << 20


def test_digests_of_an_older_kind_are_not_believed(place: pathlib.Path) -> None:
    for digest in (md5(BODY), f"{md5(BODY)}-3", "crc64/0:00", ""):
        assert not is_unchanged(place, digest)


def test_the_store_says_in_which_parts_an_object_was_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, headers, expected in (
        (10, {"content-length": "4", "x-amz-mp-parts-count": "3"}, 4),
        (10, {"content-length": "4", "x-amz-mp-parts-count": "2"}, None),
        (10, {"content-length": "10"}, None),
        (10, {"content-length": "0", "x-amz-mp-parts-count": "1"}, None),
    ):
        monkeypatch.setattr(Store, "send", lambda *_a, told=headers, **_k: Answer(206, told, b""))
        assert ask_part_bytes(Store(), "http://x/", "e", size) == expected
    with object_store.running() as server:
        assert ask_part_bytes(Store(), server.address("absent"), "e", 1) is None
        assert ask_checksum(Store(), server.address("absent"), "e") is None
