# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sealed form of an archive: it opens with its key alone, and only as it was sealed."""

from __future__ import annotations

import dataclasses
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.control_backup import BackupManifest
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._workflows.cluster_backup import sealed

SALT = bytes(16)
KEY = sealed.SealKey(Secret("a key of these tests 1", "key"), SALT)
OTHER = sealed.SealKey(Secret("a key of these tests 2", "key"), SALT)
PIECES = [b"one" * 100, b"two" * 100, b"three"]


def seal(pieces: list[bytes]) -> bytes:
    return b"".join(KEY.seal(pieces, b"1234567"))


def unseal(data: bytes, key: sealed.SealKey = KEY) -> bytes:
    return b"".join(key.open(io.BytesIO(data).read, "the archive"))


@pytest.mark.parametrize("pieces", [[], [b""], [b"x"], PIECES, [bytes(sealed.PIECE_BYTES), b"y"]])
def test_it_opens_as_it_was_sealed(pieces: list[bytes]) -> None:
    assert unseal(seal(pieces)) == b"".join(pieces)


def test_nothing_of_it_can_be_read_and_no_two_keys_are_alike() -> None:
    assert b"oneone" not in seal(PIECES)
    with pytest.raises(RefusedError, match="damaged"):
        unseal(seal(PIECES), OTHER)
    assert KEY.check != OTHER.check != sealed.SealKey(Secret("a key of these tests 2", "key"), b"1" * 16).check


@given(st.integers(0, len(seal(PIECES)) - 1), st.integers(1, 255))
def test_a_byte_that_was_changed_is_found(place: int, change: int) -> None:
    data = bytearray(seal(PIECES))
    data[place] ^= change
    with pytest.raises(RefusedError, match="the archive is damaged"):
        unseal(bytes(data))


@given(st.integers(0, len(seal(PIECES)) - 1))
def test_one_that_was_cut_is_found(length: int) -> None:
    with pytest.raises(RefusedError, match="the archive is damaged"):
        unseal(seal(PIECES)[:length])


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="the archive is damaged"):
        unseal(data)


def test_pieces_that_were_moved_or_added_are_found() -> None:
    data = seal(PIECES)
    head, size = data[:21], 4 + 300 + 16
    first, second, last = data[21 : 21 + size], data[21 + size : 21 + 2 * size], data[21 + 2 * size :]
    for other in (second + first + last, first + last, first + second + last + last):
        with pytest.raises(RefusedError):
            unseal(head + other)


def test_a_wrong_key_is_told_from_a_changed_manifest() -> None:
    manifest = BackupManifest(
        "20261129T061500Z-1a2b", "lab", "t", "s1", "sqlite", "v1.34.10+k3s1", "ab" * 32, 1, 1, 1, "12" * 32, SALT.hex(),
        KEY.check,
    )  # fmt: skip
    manifest = dataclasses.replace(manifest, seal=KEY.sign(manifest))
    sealed.require_key(KEY, manifest)
    with pytest.raises(RefusedError, match="was sealed with another key"):
        sealed.require_key(OTHER, manifest)
    for changed in ({"authority": "cd" * 32}, {"sha256": "0" * 64}, {"k3s_version": "v1.1.1+k3s1"}, {"seal": ""}):
        with pytest.raises(RefusedError, match="was changed"):
            sealed.require_key(KEY, dataclasses.replace(manifest, **changed))
