# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file in pieces: its name comes last, a cut copy continues, and other content than the listed one is refused."""

from __future__ import annotations

import hashlib
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import remote_file

DATA = bytes(range(256)) * 8


def listed(path: str, data: bytes, content: bytes | None = None) -> tuple[remote_file.RemoteFile, list[int]]:
    asked: list[int] = []

    def read(offset: int) -> bytes:
        asked.append(offset)
        return (data if content is None else content)[offset : offset + 1000]

    return remote_file.RemoteFile("n", path, len(data), hashlib.sha256(data).hexdigest(), path, read, "Go"), asked


def test_a_cut_copy_continues_and_is_whole_under_its_name(tmp_path: pathlib.Path) -> None:
    file, asked = listed("a/b", DATA)
    target = tmp_path / "a" / "b"
    target.parent.mkdir()
    (target.parent / f".b.{file.sha256[:12]}.part").write_bytes(DATA[:1500])
    assert not remote_file.is_there(target, file)
    remote_file.fetch_file(file, target)
    assert asked == [1500] and remote_file.is_there(target, file) and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("content", [DATA[:-1], DATA[:-1] + b"x"])
def test_other_content_than_the_listed_one_is_refused_and_goes(tmp_path: pathlib.Path, content: bytes) -> None:
    file, _asked = listed("b", DATA, content)
    with pytest.raises(RefusedError, match="n: b is not what was listed a moment ago. Go"):
        remote_file.fetch_file(file, tmp_path / "b")
    assert not list(tmp_path.iterdir())


def test_a_destination_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_text("not a folder")
    with pytest.raises(RefusedError, match=r"a/b: (Not a directory|File exists)\. Name another folder"):
        remote_file.fetch_file(listed("a/b", DATA)[0], tmp_path / "a" / "b")


def test_an_empty_file_is_not_asked_for(tmp_path: pathlib.Path) -> None:
    file, asked = listed("b", b"")
    remote_file.fetch_file(file, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"" and asked == []


def test_a_twin_is_left_out_and_another_file_is_below_its_owner() -> None:
    chosen: dict[str, remote_file.RemoteFile] = {}
    for owner, data in (("n-1", b"1"), ("n-2", b"1"), ("n-3", b"3")):
        remote_file.add_file(chosen, listed("step/x", data)[0], owner)
    assert sorted(chosen) == ["n-3/step/x", "step/x"] and chosen["n-3/step/x"].target == "n-3/step/x"


@pytest.mark.parametrize("path", ["/x", "../x", "a/../../x", ""])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(RefusedError, match="outside of the run's folder"):
        remote_file.check_path(path)
