# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listings on disk: by age, private, only an outage is bridged."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._inventory import (
    cache,
)


def fetch_none() -> list[dict[str, t.Any]]:
    raise TransportError("GET https://api.example.com: no connection")


def rule(folder: pathlib.Path, fresh_s: int = 60, stale_s: int = 600) -> cache.CacheRule:
    return cache.CacheRule(str(folder / "cache"), fresh_s, stale_s)


def test_kept_answers_by_age(tmp_path: pathlib.Path) -> None:
    kept = rule(tmp_path)
    first = cache.read_listing(kept, "a.json", lambda: [{"id": 1}], lambda: 1000.0)
    assert first == cache.CachedResponse([{"id": 1}])
    assert cache.read_listing(kept, "a.json", fetch_none, lambda: 1059.0).age_s == 59
    asked = cache.read_listing(kept, "a.json", lambda: [{"id": 2}], lambda: 1059.0, use_fresh=False)
    assert asked.listing == [{"id": 2}]
    stale = cache.read_listing(kept, "a.json", fetch_none, lambda: 1200.0)
    assert stale.listing == [{"id": 2}] and stale.age_s == 141 and "no connection" in stale.problem
    with pytest.raises(TransportError):
        cache.read_listing(kept, "a.json", fetch_none, lambda: 1700.0)


@pytest.mark.parametrize(
    ("status", "kept"), [(401, False), (403, False), (404, False), (301, False), (429, True), (500, True)]
)
def test_only_an_outage_is_bridged(tmp_path: pathlib.Path, status: int, kept: bool) -> None:
    def fetch() -> list[dict[str, t.Any]]:
        raise ApiError("GET", "https://api.example.com", status)

    cache.read_listing(rule(tmp_path), "a.json", lambda: [{"id": 1}], lambda: 0.0)
    if kept:
        assert cache.read_listing(rule(tmp_path), "a.json", fetch, lambda: 100.0).listing == [{"id": 1}]
    else:
        with pytest.raises(ApiError):
            cache.read_listing(rule(tmp_path), "a.json", fetch, lambda: 100.0)


def test_kept_files_are_private(tmp_path: pathlib.Path) -> None:
    old = os.umask(0)
    try:
        cache.read_listing(rule(tmp_path), "a.json", lambda: [{"id": 1}], lambda: 5.0)
    finally:
        os.umask(old)
    path = tmp_path / "cache" / "a.json"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["a.json"]
    path.chmod(0o622)
    assert cache.load_response(str(path), 6.0) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"schema": 1}', b'{"schema": 1, "fetched_at": "x", "listing": []}', b"\xff",
     b'{"schema": 2, "fetched_at": 1, "listing": []}', b'{"schema": 1, "fetched_at": 1, "listing": [1]}',
     b'{"schema": 1, "fetched_at": 99, "listing": []}', b'{"schema": 1, "fetched_at": 1, "listing": {}}', b"[" * 90000],
)  # fmt: skip
def test_kept_files_that_cannot_be_trusted(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert cache.load_response(str(path), 50.0) is None


def test_an_unwritable_folder_is_no_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert cache.read_listing(rule(tmp_path), "a.json", list, lambda: 0.0).listing == []
    off = cache.CacheRule(str(tmp_path / "off"))
    cache.read_listing(off, "a.json", list, lambda: 0.0)
    assert not (tmp_path / "off").exists()


def test_names_of_kept_files_tell_sources_apart() -> None:
    one = cache.file_name("muster.training.runpod", ["https://a", "acc"])
    assert one.startswith("runpod-") and one != cache.file_name("muster.training.runpod", ["https://a", "other"])
    assert cache.file_name("x", ["ab", "c"]) != cache.file_name("x", ["a", "bc"])
    assert cache.default_folder({"XDG_CACHE_HOME": "/c"}) == "/c/muster.training/inventory"
    assert cache.default_folder({"XDG_CACHE_HOME": "rel", "HOME": "/h"}) == "/h/.cache/muster.training/inventory"
    assert cache.default_folder({}) == ""
