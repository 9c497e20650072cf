# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files by content: a transfer resumes from any cut, damage is refused, and a tree holds exactly its files."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import os
import pathlib
import tempfile
import typing as t
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import host_blobs

Manifest = list[dict[str, t.Any]]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def piece(data: bytes, offset: int, part: bytes, last: bool) -> dict[str, t.Any]:
    return {"sha256": sha(data), "offset": offset, "data": base64.b64encode(zlib.compress(part)).decode(), "last": last}


def store(root: pathlib.Path, *contents: bytes) -> None:
    assert host_blobs.store_pieces(root, [piece(data, 0, data, True) for data in contents]) == {}


def entry(path: str, data: bytes, mode: int = 0o600) -> dict[str, t.Any]:
    return {"path": path, "sha256": sha(data), "mode": mode, "size": len(data)}


@settings(max_examples=30)
@given(
    data=st.binary(max_size=200),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    lost=st.lists(st.integers(0, 60), max_size=4),
)
def test_a_transfer_resumes_from_any_cut(data: bytes, cuts: list[int], lost: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for cut, gone in zip(cuts, [*lost, *[0] * 4], strict=False):
            have = host_blobs.missing_offsets(root, [sha(data)])[sha(data)]
            end = min(len(data), have + cut)
            assert host_blobs.store_pieces(root, [piece(data, have, data[have:end], False)]) == {}
            # The node went down: the end of what had arrived was not on its disk yet.
            part = root / "blobs" / f"{sha(data)}.part"
            os.truncate(part, max(0, part.stat().st_size - gone))
        have = host_blobs.missing_offsets(root, [sha(data)])[sha(data)]
        assert host_blobs.store_pieces(root, [piece(data, have, data[have:], True)]) == {}
        assert host_blobs.missing_offsets(root, [sha(data)]) == {}
        assert (root / "blobs" / sha(data)).read_bytes() == data
        assert [path.name for path in (root / "blobs").iterdir()] == [sha(data)]


def test_a_piece_that_does_not_fit_is_refused_with_the_length_that_does(tmp_path: pathlib.Path) -> None:
    data = b"0123456789"
    assert host_blobs.store_pieces(tmp_path, [piece(data, 0, data[:4], False)]) == {}
    assert host_blobs.store_pieces(tmp_path, [piece(data, 0, data[:4], False), piece(data, 6, data[6:], True)]) == {
        sha(data): 4
    }
    assert host_blobs.missing_offsets(tmp_path, [sha(data)]) == {sha(data): 4}


def test_runs_that_send_the_same_file_at_once_do_not_disturb_each_other(tmp_path: pathlib.Path) -> None:
    """Six runs on one host that lacked it: the pieces of each come in their order, those of all in any."""
    data = os.urandom(60_000)
    cuts = [(at, min(at + 7_000, len(data))) for at in range(0, len(data), 7_000)]

    def send(number: int) -> list[dict[str, int]]:
        pieces = [piece(data, begin, data[begin:end], end == len(data)) for begin, end in cuts]
        return [host_blobs.store_pieces(tmp_path, [one]) for one in pieces]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(send, range(6)))
    assert answers == [[{}] * len(cuts)] * 6
    assert (tmp_path / "blobs" / sha(data)).read_bytes() == data
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == [sha(data)]


def test_a_damaged_file_never_takes_its_name_and_is_asked_for_again(tmp_path: pathlib.Path) -> None:
    data = b"0123456789"
    assert host_blobs.store_pieces(tmp_path, [piece(data, 0, b"0123x56789", True)]) == {sha(data): 0}
    assert host_blobs.missing_offsets(tmp_path, [sha(data)]) == {sha(data): 0}
    store(tmp_path, data)
    assert host_blobs.missing_offsets(tmp_path, [sha(data), sha(b"")]) == {sha(b""): 0}
    assert (tmp_path / "blobs" / sha(data)).stat().st_mode & 0o777 == 0o400


def test_a_tree_holds_its_files_beside_those_that_a_program_wrote(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "run" / "code"
    store(tmp_path, b"one", b"two", b"")
    first: Manifest = [entry("a.py", b"one", 0o700), entry("pkg/b.py", b"two"), entry("pkg/__init__.py", b"")]
    assert host_blobs.place_tree(tmp_path, first, target, False) is True
    assert host_blobs.place_tree(tmp_path, first, target, False) is False
    (target / "pkg" / "output.txt").write_text("kept")
    second: Manifest = [entry("a.py", b"two"), entry("c.py", b"one")]
    assert host_blobs.place_tree(tmp_path, second, target, False) is True
    found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found == {"a.py": b"two", "c.py": b"one", "pkg/output.txt": b"kept"}


def test_copies_have_their_mode_and_links_are_the_blob_itself(tmp_path: pathlib.Path) -> None:
    store(tmp_path, b"one")
    host_blobs.place_tree(tmp_path, [entry("run.sh", b"one", 0o700)], tmp_path / "code", False)
    host_blobs.place_tree(tmp_path, [entry("text", b"one")], tmp_path / "data", True)
    copy, linked, blob = tmp_path / "code" / "run.sh", tmp_path / "data" / "text", tmp_path / "blobs" / sha(b"one")
    assert copy.stat().st_mode & 0o777 == 0o700 and not copy.samefile(blob)
    assert linked.samefile(blob) and linked.stat().st_mode & 0o777 == 0o400
    copy.write_bytes(b"changed by the program")
    assert blob.read_bytes() == b"one"


def test_a_link_becomes_a_copy_where_links_are_not_possible(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: t.Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    store(tmp_path, b"one")
    monkeypatch.setattr(os, "link", refuse)
    host_blobs.place_tree(tmp_path, [entry("text", b"one")], tmp_path / "data", True)
    assert (tmp_path / "data" / "text").read_bytes() == b"one"


TREES = st.dictionaries(st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"]), st.sampled_from([b"", b"1", b"22"]))


@settings(max_examples=30)
@given(trees=st.lists(TREES, min_size=1, max_size=4))
def test_after_any_series_of_trees_the_last_one_is_there(trees: list[dict[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        store(root, b"", b"1", b"22")
        for tree in trees:
            host_blobs.place_tree(root, [entry(path, data) for path, data in tree.items()], root / "t", False)
        files = {
            str(path.relative_to(root / "t")): path.read_bytes() for path in (root / "t").rglob("*") if path.is_file()
        }
        assert files == trees[-1]


def test_free_bytes_are_those_of_the_disk_that_will_hold_the_path(tmp_path: pathlib.Path) -> None:
    assert host_blobs.free_bytes(tmp_path / "not" / "yet" / "there") == pytest.approx(
        host_blobs.free_bytes(tmp_path), rel=0.1
    )


def test_a_file_that_became_executable_is_placed_again(tmp_path: pathlib.Path) -> None:
    store(tmp_path, b"one")
    host_blobs.place_tree(tmp_path, [entry("run.sh", b"one", 0o600)], tmp_path / "code", False)
    assert host_blobs.place_tree(tmp_path, [entry("run.sh", b"one", 0o700)], tmp_path / "code", False) is True
    assert (tmp_path / "code" / "run.sh").stat().st_mode & 0o777 == 0o700


def test_a_file_that_was_changed_on_the_node_is_placed_again(tmp_path: pathlib.Path) -> None:
    store(tmp_path, b"one")
    manifest = [entry("train.py", b"one")]
    host_blobs.place_tree(tmp_path, manifest, tmp_path / "code", False)
    (tmp_path / "code" / "train.py").write_bytes(b"changed on the node")
    host_blobs.place_tree(tmp_path, manifest, tmp_path / "code", False)
    assert (tmp_path / "code" / "train.py").read_bytes() == b"one"


def test_a_folder_that_became_a_file_is_replaced(tmp_path: pathlib.Path) -> None:
    store(tmp_path, b"one")
    host_blobs.place_tree(tmp_path, [entry("model/a.py", b"one")], tmp_path / "code", False)
    host_blobs.place_tree(tmp_path, [entry("model", b"one")], tmp_path / "code", False)
    assert (tmp_path / "code" / "model").read_bytes() == b"one"
