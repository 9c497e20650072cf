# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data file of downloads, and where a file comes from."""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads


def test_every_entry_is_complete_and_says_whether_its_digest_is_known() -> None:
    for item in downloads.entries():
        assert item.url.startswith("https://") and item.url.endswith(f"/{item.file}")
        assert item.version.replace("+", "%2B") in item.url
        assert item.sha256 == "" or re.fullmatch(r"[0-9a-f]{64}", item.sha256)
    keys = [item.key for item in downloads.entries()]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", ["k3s", "k3s-images"])
def test_programs_of_machines_exist_for_both_architectures(name: str) -> None:
    found = [(item.version, item.architecture) for item in downloads.entries() if item.name == name]
    versions = {version for version, _architecture in found}
    assert versions and {(v, a) for v in versions for a in ("amd64", "arm64")} == set(found)


@pytest.mark.parametrize("name", ["k3s", "jobset", "kueue"])
def test_the_default_version_is_an_entry(name: str) -> None:
    assert downloads.default_version(name) in {item.version for item in downloads.entries() if item.name == name}


def test_another_version_has_the_same_kind_of_url_and_no_digest() -> None:
    found = downloads.find("k3s", "v1.35.6+k3s1", "arm64")
    assert found.url == "https://github.com/k3s-io/k3s/releases/download/v1.35.6%2Bk3s1/k3s-arm64"
    assert found.sha256 == "" and found.file == "k3s-arm64"
    other = downloads.find("k3s-images", downloads.default_version("k3s"), "amd64", "x.tar")
    assert other.url.endswith("/x.tar") and other.sha256 == ""


def test_an_architecture_without_an_entry_is_refused() -> None:
    with pytest.raises(InputError, match=r"k3s: has no download for riscv64\. It has some for: amd64, arm64"):
        downloads.find("k3s", downloads.default_version("k3s"), "riscv64")


def test_a_file_comes_from_upstream_another_url_a_folder_or_a_path(tmp_path: pathlib.Path) -> None:
    found = downloads.find("k3s", downloads.default_version("k3s"), "amd64")
    assert downloads.locate(found, "", tmp_path) == found.url
    assert downloads.locate(found, "https://mirror.example/k3s/", tmp_path) == "https://mirror.example/k3s/k3s"
    (tmp_path / "k3s").touch()
    assert downloads.locate(found, ".", tmp_path) == tmp_path / "k3s"
    assert downloads.locate(found, str(tmp_path / "k3s"), tmp_path / "elsewhere") == tmp_path / "k3s"
    with pytest.raises(InputError, match="Place k3s there or name a URL"):
        downloads.locate(found, str(tmp_path / "none"), tmp_path)


def test_programs_that_are_images_have_a_version_and_a_digest() -> None:
    names = [downloads.image_of(program) for program in sorted(downloads.image_programs())]
    assert names == [
        "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.4.1",
        "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3",
        "nvcr.io/nvidia/k8s-device-plugin:v0.19.3",
    ]
    pinned = downloads.pinned_image(names[0], by_tag=False)
    assert pinned.startswith(f"{names[0]}@sha256:") and downloads.pinned_image(names[0], by_tag=True) == names[0]
    assert downloads.pinned_image("x.y/z:1", by_tag=False) == "x.y/z:1"
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", downloads.image(name).sha256) for name in names)
    assert downloads.image_of("nvidia-device-plugin", "v0.20.0") == "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"


def test_an_image_whose_digest_was_not_published_has_none() -> None:
    name = "nvcr.io/nvidia/mellanox/multus-cni:network-operator-v26.1."
    assert downloads.image(f"{name}2").sha256 == "" and downloads.pinned_image(f"{name}2", by_tag=False) == f"{name}2"
    assert downloads.pinned_image(f"{name}1", by_tag=False).startswith(f"{name}1@sha256:8167840a2a7f")
