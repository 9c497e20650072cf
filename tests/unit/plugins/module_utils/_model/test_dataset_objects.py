# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a bucket as files of a dataset: what cannot be a file is named."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.dataset_objects import build_files
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError


def test_a_folder_becomes_paths_below_it_without_its_own_objects() -> None:
    rows = [("p/b/ü x", 3, "e1"), ("p/a", 0, "e2"), ("p/", 0, "e3"), ("p/sub/", 0, "e4")]
    found = build_files(rows, "p/", "d")
    assert [(item.path, item.key, item.size) for item in found.objects] == [("a", "p/a", 0), ("b/ü x", "p/b/ü x", 3)]
    assert found.size == 3
    assert [item.path for item in build_files([("p/one.bin", 1, "e")], "p/one.bin", "d").objects] == ["one.bin"]


def test_any_change_of_place_name_size_or_content_is_another_identity() -> None:
    base = build_files([("a", 1, "e")], "", "d")
    others = [base, *(build_files([row], "", "d") for row in (("b", 1, "e"), ("a", 2, "e"), ("a", 1, "f")))]
    assert len({item.identity("s b") for item in others} | {base.identity("s c")}) == 5
    assert base.identity("s b") == build_files([("a", 1, "e")], "", "d").identity("s b")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["../x"], "'../x' is not a path below a folder"),
        (["a//b"], "'a//b' is not a path"),
        (["/x"], "'/x' is not a path"),
        (["a/./b", ".."], "'a/./b' is not a path below a folder; '..' is not"),
        (["x" * 256], "longer than a file system allows"),
        (["ü" * 128], "longer than a file system allows"),
        (["a", "a/b"], "'a' is an object and a folder of others"),
        ([], "no objects begin with ''"),
    ],
)
def test_what_cannot_be_a_file_is_named(keys: list[str], words: str) -> None:
    with pytest.raises(RefusedError, match="job.datasets.d") as caught:
        build_files([(key, 1, "e") for key in keys], "", "job.datasets.d")
    assert words in str(caught.value)
