# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders by content, and transfers that only send what is missing."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import host_blobs
from ansible_collections.muster.training.plugins.plugin_utils._hosts import file_sync
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient


def write(root: pathlib.Path, files: t.Mapping[str, bytes]) -> pathlib.Path:
    for name, data in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return root


class Node(NodeClient):
    """A node whose requests go straight to a blob store below a folder; ``sent`` lists the pieces' sizes."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__("n", lambda command, data: (1, "", ""))
        self.root, self.sent = root, list[int]()

    def ask(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "put"
        self.sent += [len(piece["data"]) for piece in values["pieces"]]
        return {"refused": host_blobs.store_pieces(self.root, values["pieces"])}


def test_a_tree_is_its_files_without_version_control_and_caches(tmp_path: pathlib.Path) -> None:
    wanted = {"train.py": b"1", "pkg/a.py": b"22", "data.bin": b""}
    skipped = {".git/config": b"x", "pkg/__pycache__/a.pyc": b"x", "b.pyc": b"x", ".venv/bin/python": b"x"}
    root = write(tmp_path / "code", {**wanted, **skipped})
    (root / "train.py").chmod(0o755)
    (root / "broken").symlink_to("nowhere")
    tree = file_sync.read_tree(root, "option")
    assert {file.path: (file.size, file.mode) for file in tree.files} == {
        "data.bin": (0, 0o600),
        "train.py": (1, 0o700),
        "pkg/a.py": (2, 0o600),
    }
    assert [entry["path"] for entry in tree.manifest()] == [file.path for file in tree.files]


def test_the_digest_is_that_of_content_names_and_the_executable_bit(tmp_path: pathlib.Path) -> None:
    root = write(tmp_path / "a", {"x": b"1", "y": b"2"})
    digest = file_sync.read_tree(root, "o").sha256
    assert file_sync.read_tree(write(tmp_path / "b", {"y": b"2", "x": b"1"}), "o").sha256 == digest
    (root / "x").chmod(0o755)
    executable = file_sync.read_tree(root, "o").sha256
    (root / "x").chmod(0o644)
    (root / "y").rename(root / "z")
    assert len({digest, executable, file_sync.read_tree(root, "o").sha256}) == 3


def test_a_single_file_is_a_tree_and_a_missing_one_an_error(tmp_path: pathlib.Path) -> None:
    write(tmp_path, {"LICENSE": b"text"})
    assert [file.path for file in file_sync.read_tree(tmp_path / "LICENSE", "o").files] == ["LICENSE"]
    with pytest.raises(InputError, match=f"^job.code.ref: {tmp_path}/none does not exist$"):
        file_sync.read_tree(tmp_path / "none", "job.code.ref")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    root = write(tmp_path / "code", {"a": b"1"})
    (root / "a").chmod(0)
    with pytest.raises(InputError, match=f"cannot read {root}/a: Permission denied"):
        file_sync.read_tree(root, "o")


FILES = st.dictionaries(st.sampled_from(["a", "b", "d/c"]), st.binary(max_size=40), min_size=1)


@settings(max_examples=25)
@given(files=FILES, cut=st.integers(0, 40), piece=st.integers(1, 16))
def test_only_what_is_missing_is_sent(
    files: dict[str, bytes], cut: int, piece: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    tree = file_sync.read_tree(write(folder / "code", files), "o")
    node = Node(folder / "node")
    shas = sorted({file.sha256 for file in tree.files})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_sync, "PIECE_BYTES", piece)
        first = host_blobs.missing_offsets(node.root, shas)
        # An earlier transfer was cut: some of the first file is there already.
        data = next(file.source.read_bytes() for file in tree.files if file.sha256 == shas[0])[:cut]
        (node.root / "blobs").mkdir(parents=True)
        (node.root / "blobs" / f"{shas[0]}.part").write_bytes(data)
        missing = host_blobs.missing_offsets(node.root, shas)
        sent = file_sync.send_files(node, [tree], missing, 1 << 30)
    sizes = {file.sha256: file.size for file in tree.files}
    assert sent == sum(sizes.values()) - len(data) and set(first.values()) == {0}
    assert host_blobs.missing_offsets(node.root, shas) == {}
    assert all((node.root / "blobs" / sha).stat().st_size == sizes[sha] for sha in shas)
    before = len(node.sent)
    assert file_sync.send_files(node, [tree], {}, 0) == 0 and len(node.sent) == before


def test_a_disk_that_is_too_small_is_known_before_anything_is_sent(tmp_path: pathlib.Path) -> None:
    tree = file_sync.read_tree(write(tmp_path / "code", {"a": b"x" * 2000}), "o")
    node = Node(tmp_path / "node")
    with pytest.raises(RefusedError, match=r"^n: 0\.00 GB must be copied and 0\.00 GB are free\. Free space"):
        file_sync.send_files(node, [tree], {tree.files[0].sha256: 0}, 1999)
    assert node.sent == []
    assert file_sync.send_files(node, [tree], {tree.files[0].sha256: 0}, 2000) == 2000


def test_a_file_that_changes_while_it_is_copied_is_told(tmp_path: pathlib.Path) -> None:
    root = write(tmp_path / "code", {"a": b"old"})
    tree = file_sync.read_tree(root, "o")
    (root / "a").write_bytes(b"new")
    with pytest.raises(RefusedError, match="^n: 1 files arrived damaged or changed while being copied. Run again$"):
        file_sync.send_files(Node(tmp_path / "node"), [tree], {tree.files[0].sha256: 0}, 1 << 30)


def test_a_name_that_is_no_text_is_told(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "code"
    root.mkdir()
    with open(os.path.join(os.fsencode(root), b"caf\xe9.py"), "w"):
        pass
    with pytest.raises(InputError):
        file_sync.read_tree(root, "o")


def test_a_linked_folder_is_sent_or_refused(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "shared", {"lib.py": b"1"})
    root = write(tmp_path / "code", {"train.py": b"1"})
    (root / "lib").symlink_to(tmp_path / "shared")
    try:
        found = [file.path for file in file_sync.read_tree(root, "o").files]
    except InputError:
        return
    assert "lib/lib.py" in found
