# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock file: the first digest is written, and every other one is refused."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._hosts.downloads import Download
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import digest_lock

UNKNOWN = Download("k3s", "v1", "amd64", "k3s", "https://example.com/k3s", "")
KNOWN = Download("kueue", "v2", "any", "m.yaml", "https://example.com/m.yaml", "b" * 64)


def test_the_first_digest_is_held(tmp_path: pathlib.Path) -> None:
    lock = digest_lock.DigestLock(tmp_path / "lock.json")
    assert lock.find_digest(UNKNOWN) == ""
    lock.hold(UNKNOWN, "a" * 64, write=False)
    assert not lock.place.exists()
    lock.hold(UNKNOWN, "a" * 64)
    lock.hold(UNKNOWN, "a" * 64)
    assert json.loads(lock.place.read_text()) == {"k3s v1 amd64 k3s": "a" * 64}
    with pytest.raises(RefusedError, match="k3s v1 .k3s. has the SHA-256 c+ and not a+, which .*lock.json has"):
        lock.hold(UNKNOWN, "c" * 64)


def test_a_digest_of_the_collection_needs_no_lock(tmp_path: pathlib.Path) -> None:
    lock = digest_lock.DigestLock(tmp_path / "lock.json")
    assert lock.find_digest(KNOWN) == "b" * 64
    lock.hold(KNOWN, "b" * 64)
    assert not lock.place.exists()
    with pytest.raises(RefusedError, match="the collection's list of downloads"):
        lock.hold(KNOWN, "a" * 64)


def test_of_two_first_downloads_at_once_only_one_digest_is_held(tmp_path: pathlib.Path) -> None:
    lock = digest_lock.DigestLock(tmp_path / "lock.json")

    def attempt(letter: str) -> bool:
        try:
            lock.hold(UNKNOWN, letter * 64)
        except RefusedError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, "abcdabcd"))
    held = lock.find_digest(UNKNOWN)
    assert [letter * 64 == held for letter in "abcdabcd"] == results


def test_a_damaged_lock_file_is_not_taken_as_empty(tmp_path: pathlib.Path) -> None:
    (tmp_path / "lock.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        digest_lock.DigestLock(tmp_path / "lock.json").find_digest(UNKNOWN)


def test_it_lies_beside_the_inventory(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts.yml").touch()
    (tmp_path / "folder").mkdir()
    for sources, given, wanted in (
        ([str(tmp_path / "hosts.yml")], None, tmp_path / digest_lock.LOCK),
        (["a,b,", str(tmp_path / "folder")], None, tmp_path / "folder" / digest_lock.LOCK),
        (["a,b,"], None, tmp_path / digest_lock.LOCK),
        ([], "x.json", tmp_path / "x.json"),
    ):
        assert digest_lock.find_lock(sources, tmp_path, given).place == wanted
