# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The index of a bundle: what is written is read, and what is not of it is told apart."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import bundle
from ansible_collections.muster.training.plugins.plugin_utils._hosts.bundle import BundleEntry

K3S = BundleEntry("k3s", "v1", "amd64", "k3s/v1/k3s", "aa")
IMAGES = BundleEntry("k3s-images", "v1", "amd64", "k3s-images/v1/images.tar", "bb", "cluster")
JOB = BundleEntry("docker.io/library/train:1", "", "arm64", "images/train.tar", "cc", "job", "sha256:dd")


def test_an_index_is_written_once(tmp_path: pathlib.Path) -> None:
    assert bundle.read_index(tmp_path) == []
    assert bundle.write_index(tmp_path, [JOB, K3S, IMAGES]) and not bundle.write_index(tmp_path, [IMAGES, JOB, K3S])
    assert set(bundle.read_index(tmp_path)) == {K3S, IMAGES, JOB}


@given(text=st.text(max_size=20) | st.sampled_from(["{}", '{"entries": [{"name": 1}]}', '{"entries": 3}', "[]"]))
def test_an_index_that_cannot_be_read_is_named(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "bundle.json").write_text(text)
    with pytest.raises(InputError, match=r"bundle\.json: cannot be read"):
        bundle.read_index(folder)


def test_archives_are_those_of_the_cluster_and_a_job_has_its_own(tmp_path: pathlib.Path) -> None:
    bundle.write_index(tmp_path, [JOB, K3S, IMAGES])
    assert bundle.list_archives(tmp_path, "amd64") == bundle.list_archives(tmp_path) == [IMAGES]
    assert bundle.list_archives(tmp_path, "arm64") == []
    assert bundle.find_image(tmp_path, JOB.name, "arm64") == JOB
    with pytest.raises(InputError, match=r"for amd64.*It has images: docker\.io/library/train:1 \(arm64\)"):
        bundle.find_image(tmp_path, JOB.name, "amd64")


def test_a_file_with_another_digest_than_the_index_is_refused(tmp_path: pathlib.Path) -> None:
    bundle.write_index(tmp_path, [K3S])
    place = tmp_path / K3S.path
    bundle.check_digest(str(tmp_path), pathlib.Path(), place, "aa")
    bundle.check_digest(str(tmp_path), pathlib.Path(), tmp_path / "other", "xx")
    bundle.check_digest("https://example.com", tmp_path, place, "xx")
    with pytest.raises(RefusedError, match=r"has the SHA-256 xx and not aa, which bundle\.json has"):
        bundle.check_digest(str(tmp_path), pathlib.Path(), place, "xx")


def test_a_url_and_a_file_are_no_folders(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    assert [bundle.find_folder(source, tmp_path) for source in ("", "https://x/y", "file")] == [None] * 3
    assert bundle.find_folder(".", tmp_path) == tmp_path
