# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of images as tools write them, and those that are not."""

from __future__ import annotations

import json
import pathlib
import tarfile

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._services.registry import archives
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import (
    ImageName,
    Registry,
    digest_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.image_source import ArchiveSource
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.push import plan_push
from ansible_collections.muster.training.tests.fakes.registry import FakeRegistry
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._services.registry.test_push import (
    LAYER,
    NAME,
    write,
)

CONFIG = b'{"architecture": "amd64"}'


def read(place: pathlib.Path, name: str = NAME) -> str:
    with ArchiveSource(place, name) as source:
        plan = plan_push(source)
        for digest, size in plan.blobs.items():
            with source.open(digest) as file:
                content = file.read()
            assert (digest_of(content), len(content)) == (digest, size)
        return plan.digest


def test_an_archive_in_the_oci_layout_and_a_folder_of_it(tmp_path: pathlib.Path) -> None:
    """As release_bundle writes it; unpacked it is the same image."""
    with FakeRegistry() as server:
        digest = server.add_image("team/train", "1")
        registry = Registry(ImageName.from_text(f"{server.host}/team/train:1"))
        archives.write_archive(registry, NAME, archives.find_manifest(registry, "amd64"), tmp_path / "a.tar")
    assert read(tmp_path / "a.tar") == digest
    with tarfile.open(tmp_path / "a.tar") as archive:
        archive.extractall(tmp_path / "folder", filter="data")
    assert read(tmp_path / "folder") == digest
    blob = next(place for place in (tmp_path / "folder/blobs/sha256").iterdir() if b"team/train" in place.read_bytes())
    blob.write_bytes(b"x" * blob.stat().st_size)
    with pytest.raises(RefusedError, match="is damaged"):
        read(tmp_path / "folder")
    blob.unlink()
    with pytest.raises(InputError, match="lacks blobs/sha256"):
        read(tmp_path / "folder")


def test_an_archive_of_several_images_is_asked_for_one(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "a.tar"
    write(place, {"config.json": CONFIG, "one/layer.tar": LAYER}, "other:2")
    assert read(place) == read(place)
    with pytest.raises(InputError, match="holds 2 images, and 0 named registry.mesh:5000/team/train:9"):
        read(place, "registry.mesh:5000/team/train:9")
    write(place, {"config.json": CONFIG, "one/layer.tar": LAYER}, NAME)
    with pytest.raises(InputError, match="2 images, and 2 named"):
        read(place)


def test_a_layer_may_be_a_link_to_another(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "a.tar"
    write(place, {"config.json": CONFIG, "two/layer.tar": LAYER})
    with tarfile.open(place, "a") as archive:
        link = tarfile.TarInfo("one/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../two/layer.tar"
        archive.addfile(link)
    read(place)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is not an archive"), (b"not a tar" * 100, "is not an archive"), (None, "holds neither index.json nor")],
)
def test_what_is_no_image_is_refused(tmp_path: pathlib.Path, content: bytes | None, words: str) -> None:
    place = tmp_path / "a.tar"
    if content is None:
        with tarfile.open(place, "w"):
            pass
    else:
        place.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read(place)


def test_a_file_outside_of_the_archive_is_not_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps([{"Config": "../secret", "Layers": []}]))
    with pytest.raises(InputError, match="outside of it"):
        read(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest.json of .* is damaged"):
        read(folder)
